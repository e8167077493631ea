import numpy as np
import pytest

from shoal.simulate.errors import BadInput
from shoal.simulate.packing.nodes import read_nodes
from tests.simulate.packing.small import nodes_of


def test_nodes_without_a_gpu_take_no_part(tmp_path):
    nodes = nodes_of(tmp_path, "8000,1024,2,T4", "32000,4096,0,", "16000,2048,4,A10")
    assert nodes.names == ("node-0", "node-2")
    assert nodes.without_gpu == 1
    assert nodes.gpu_milli == 6000
    assert [nodes.models[model] for model in nodes.kind_model[nodes.kind]] == ["T4", "A10"]


def test_nodes_that_are_alike_are_of_one_kind(tmp_path):
    nodes = nodes_of(
        tmp_path, *["8000,1024,2,T4", "8000,1024,2,A10", "8000,1024,2,T4", "9000,1024,2,T4"]
    )
    assert nodes.kind[0] == nodes.kind[2]
    assert len(set(nodes.kind.tolist())) == len(nodes.kind_model) == 3


def test_a_thinned_cluster_keeps_every_kind_and_its_numbers(tmp_path):
    nodes = nodes_of(tmp_path, *["8000,1024,2,T4"] * 7, "9000,1024,1,A10")
    small = nodes.thinned(3)
    assert small.names == ("node-0", "node-3", "node-6", "node-7")
    assert np.array_equal(np.unique(small.kind), np.unique(nodes.kind))
    assert small.gpu_milli == 7000
    assert nodes.thinned(1).names == nodes.names


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("sn,cpu_milli,gpu\na,1,1\n", "lacks the column memory_mib, model"),
        ("", "lacks the column sn, cpu_milli, memory_mib, gpu, model"),
        ("sn,cpu_milli,memory_mib,gpu,model\n", "has a header and nothing else"),
        ("sn,cpu_milli,memory_mib,gpu,model\na,1,1,0,\nb,1,1,0,\n", "none of its 2 nodes has a GPU"),
        ("sn,cpu_milli,memory_mib,gpu,model\na,many,1,1,T4\n", "line 2: cpu_milli is a whole number"),
        ("sn,cpu_milli,memory_mib,gpu,model\na,nan,1,1,T4\n", "whole number, not 'nan'"),
        ("sn,cpu_milli,memory_mib,gpu,model\na,1,1\n", "line 2: gpu is a whole number, not nothing"),
        ("sn,cpu_milli,memory_mib,gpu,model\na,1,-1,1,T4\n", "line 2: memory_mib cannot be -1"),
        ("sn,cpu_milli,memory_mib,gpu,model\na,1,1,65,T4\n", "64 GPUs at most"),
        ("sn,cpu_milli,memory_mib,gpu,model\na,1,1,1,T\na,1,1,1,T\n", "line 3: a node needs a name"),
        ("sn,cpu_milli,memory_mib,gpu,model\n,1,1,1,T\n", "line 2: a node needs a name"),
        (f"sn,cpu_milli,memory_mib,gpu,model\na,{2**62},1,1,T\n", "cpu_milli cannot be"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_sentence(tmp_path, text, sentence):
    path = tmp_path / "nodes.csv"
    path.write_text(text)
    with pytest.raises(BadInput, match=r"nodes\.csv") as caught:
        read_nodes(path)
    assert sentence in caught.value.message
