import pytest

from shoal.simulate.errors import BadInput
from shoal.simulate.packing.nodes import read_nodes
from shoal.simulate.tables import amount, read_rows
from tests.simulate.packing.small import write_nodes


def test_rows_know_where_they_stand(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text('a,b\n1,"x\ny"\n2,z\n')
    rows = read_rows(path, ["a"])
    assert [where.removeprefix(str(path)) for where, _ in rows] == [", line 3", ", line 4"]
    assert [amount(where, row, "a") for where, row in rows] == [1, 2]


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path):
    with pytest.raises(BadInput, match=r"none\.csv cannot be read: No such file"):
        read_nodes(tmp_path / "none.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(BadInput, match="is no CSV file, or not in UTF-8: byte 0 is no text"):
        read_nodes(tmp_path / "binary.csv")
    with pytest.raises(BadInput, match="cannot be read: Is a directory"):
        read_nodes(tmp_path)


def test_a_row_that_is_too_long_is_told_and_one_that_is_too_short_lacks_what_it_lacks(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2,3\n")
    with pytest.raises(BadInput, match="line 2: it has more cells than the header has columns"):
        read_rows(path, ["a"])
    path.write_text("a,b\n1\n")
    ((where, row),) = read_rows(path, ["a"])
    with pytest.raises(BadInput, match="line 2: b is a whole number, not nothing"):
        amount(where, row, "b")


def test_a_mark_at_the_beginning_of_the_file_is_passed_over(tmp_path):
    path = write_nodes(tmp_path / "nodes.csv", ["8000,1024,2,T4"])
    path.write_text("\ufeff" + path.read_text())
    assert read_nodes(path).names == ("node-0",)
