import numpy as np
from hypothesis import given, settings

from shoal.simulate.packing.states import outcomes, requests_of, room
from tests.simulate.packing.small import node_states, nodes_of, pods_of, request, requests, state


def gpus_after(before, wanted):
    _, free, after = outcomes(before, wanted)
    return list(zip(free.tolist(), after.gpus.tolist(), strict=True))


def test_a_part_of_a_gpu_is_tried_once_on_each_amount_that_is_free():
    before = state(8000, 8000, 0, 500, 500, 1000)
    assert gpus_after(before, request(1, 1, 1, 300)) == [
        (500, [0, 200, 500, 1000]),
        (1000, [0, 500, 500, 700]),
    ]


def test_whole_gpus_are_all_alike():
    before = state(8000, 8000, 500, 1000, 1000, 1000)
    assert gpus_after(before, request(1, 1, 2, 1000)) == [(0, [0, 0, 500, 1000])]
    assert gpus_after(before, request(1, 1, 4, 1000)) == []


def test_a_pod_without_gpus_leaves_them_all():
    assert gpus_after(state(5, 5, 0, 1000), request(5, 5, 0, 0)) == [(0, [0, 1000])]


def test_free_parts_of_several_gpus_are_not_one():
    """scheduling-F2: 0.6 free on each of two GPUs is no place for 0.8."""
    assert gpus_after(state(8000, 8000, 600, 600), request(1, 1, 1, 800)) == []


def test_cores_memory_and_model_have_to_fit_too():
    before = state(1000, 1000, 1000)
    assert room(before, request(1000, 1000, 1, 400)).tolist() == [1]
    assert room(before, request(1001, 1000, 1, 400)).tolist() == [-1]
    assert room(before, request(1000, 1001, 1, 400)).tolist() == [-1]
    assert room(before, request(1, 1, 1, 400, (False,))).tolist() == [-1]


def test_requests_know_on_which_kinds_of_nodes_they_may_run(tmp_path):
    nodes = nodes_of(tmp_path, "8,8,1,T4", "9,8,1,A10", "10,8,1,T4")
    head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec"
    asked = requests_of(pods_of(tmp_path, "1,2,1,500,T4", "1,2,4,1000,", head=head).shapes, nodes)
    assert asked[0].allowed[nodes.kind].tolist() == [True, False, True]
    assert asked[1].allowed.all()
    assert (asked[0].cpu, asked[0].memory, asked[0].gpu_milli, asked[0].shared) == (1, 2, 500, True)
    assert (asked[1].gpu_milli, asked[1].shared) == (4000, False)


@settings(max_examples=60, deadline=None)
@given(before=node_states(), wanted=requests())
def test_what_is_free_less_what_is_asked_for_is_left(before, wanted):
    origin, free, after = outcomes(before, wanted)
    assert (np.diff(origin) >= 0).all()
    assert set(origin.tolist()) == set(np.flatnonzero(room(before, wanted) >= 0).tolist())
    assert (before.cpu[origin] - after.cpu == wanted.cpu).all()
    assert (before.memory[origin] - after.memory == wanted.memory).all()
    assert (before.gpus[origin].sum(axis=1) - after.gpus.sum(axis=1) == wanted.gpu_milli).all()
    assert (after.gpus >= 0).all()
    assert (np.diff(after.gpus, axis=1) >= 0).all()
    assert len({(o, f) for o, f in zip(origin.tolist(), free.tolist(), strict=True)}) == len(origin)
    if wanted.shared:
        assert (free >= wanted.milli).all()
