import numpy as np
import pytest

from shoal.simulate.errors import BadInput
from tests.simulate.packing.small import POD_HEAD, pods_of

WITH_SPEC = f"{POD_HEAD},gpu_spec"


def test_pods_that_ask_for_the_same_have_one_shape(tmp_path):
    pods = pods_of(tmp_path, "100,5,1,500", "100,5,0,0", "100,5,1,500", "100,6,1,500")
    assert pods.shape.tolist() == [0, 1, 0, 2]
    assert pods.counts.tolist() == [2, 1, 1]
    assert pods.shapes.gpu_milli.tolist() == [500, 0, 500]


def test_models_that_will_do_make_a_shape_of_their_own(tmp_path):
    rows = ["1,1,1,1000,", "1,1,1,1000,T4", "1,1,1,1000,A10|T4", "1,1,1,1000,T4 | A10", "1,1,0,0,T4"]
    pods = pods_of(tmp_path, *rows, head=WITH_SPEC)
    assert pods.shape.tolist() == [0, 1, 2, 2, 3]
    allowed = pods.shapes.allowed(("A10", "G2", "T4"))
    expected = [[True] * 3, [False, False, True], [True, False, True], [True] * 3]
    assert np.array_equal(allowed, expected)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("1,1,1,1500", "a part of one GPU or whole ones can be had, not 1.5 of 1"),
        ("1,1,2,750", "a part of one GPU or whole ones can be had, not 1.5 of 2"),
        ("1,1,1.5,1000", "num_gpu is a whole number, not '1.5'"),
        ("1,1,1,0", "1 GPUs of 0 thousandths: both are 0, or neither"),
        ("1,1,0,500", "0 GPUs of 500 thousandths"),
        ("-1,1,1,1000", "cpu_milli cannot be -1"),
        ("1,,1,1000", "memory_mib is a whole number, not nothing"),
        ("1,1", "num_gpu is a whole number"),
    ],
)
def test_what_a_pod_cannot_ask_for_is_one_sentence_with_its_line(tmp_path, row, sentence):
    with pytest.raises(BadInput) as caught:
        pods_of(tmp_path, "1,1,1,1000", row)
    assert "pods.csv, line 3: " in caught.value.message
    assert sentence in caught.value.message


def test_two_pods_of_one_name_are_told(tmp_path):
    with pytest.raises(BadInput, match="line 3: a pod needs a name of its own, not 'pod-0'"):
        pods_of(tmp_path, "1,1,1,1000\npod-0,1,1,1,1000")
