import numpy as np

from shoal.simulate.packing.fitting import Room, typical
from shoal.simulate.packing.states import States
from tests.simulate.packing.small import nodes_of, pods_of, state

HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec"


def test_the_most_frequent_shapes_cover_so_much_of_the_pods(tmp_path):
    nodes = nodes_of(tmp_path, "8000,8000,2,T4")
    rows = ["1,1,1,500"] * 6 + ["2,1,0,0"] * 2 + ["3,1,1,1000"] * 1 + ["4,1,2,1000"] * 1
    pods = pods_of(tmp_path, *rows)
    mix = typical(pods, nodes, 0.9, idle=True)
    assert mix.cpu.tolist() == [1, 3]  # of the last two, the one that came first
    assert mix.weight.tolist() == [6 / 9, 1 / 9]
    assert typical(pods, nodes, 1.0, idle=True).weight.tolist() == [0.6, 0.1, 0.1]
    assert typical(pods, nodes, 0.6, idle=True).shape.tolist() == [0]
    assert typical(pods, nodes, 1.0, idle=True).gpu_milli.tolist() == [500, 1000, 2000]


def test_pods_without_gpus_need_not_count_for_what_is_covered(tmp_path):
    nodes = nodes_of(tmp_path, "8000,8000,2,T4")
    pods = pods_of(tmp_path, *["1,1,0,0"] * 96, *["2,1,1,500"] * 3, "3,1,1,1000")
    assert len(typical(pods, nodes, 0.95, idle=True).shape) == 0
    mix = typical(pods, nodes, 0.95, idle=False)
    assert mix.cpu.tolist() == [2, 3]
    assert mix.weight.tolist() == [0.03, 0.01]


def test_a_shape_fits_where_gpus_cores_and_model_do(tmp_path):
    nodes = nodes_of(tmp_path, "8000,8000,2,T4", "8000,8000,2,A10")
    rows = ["4000,9999,1,500,", "1,1,2,1000,", "1,1,1,500,A10"]
    mix = typical(pods_of(tmp_path, *rows, head=HEAD), nodes, 1.0, idle=True)
    t4 = int(nodes.kind[0])

    def fits(*amounts):
        return Room(mix, np.zeros(1001)).of(state(*amounts, kind=t4))[1][0]

    assert np.array_equal(fits(4000, 1, 1000, 1000), [True, True, False])
    assert np.array_equal(fits(3999, 1, 500, 1000), [False, False, False])
    assert np.array_equal(fits(4000, 1, 500, 1000), [True, False, False])
    assert np.array_equal(fits(4000, 1, 499, 499), [False, False, False])


def test_what_is_of_use_is_free_where_there_is_room_and_the_worth_of_holes_elsewhere(tmp_path):
    nodes = nodes_of(tmp_path, "8000,8000,4,T4")
    mix = typical(pods_of(tmp_path, "1,1,1,500", "1,1,2,1000"), nodes, 1.0, idle=True)
    holes = np.arange(1001) / 10
    used, _ = Room(mix, holes).of(state(8000, 8000, 0, 400, 700, 1000))
    assert used.tolist() == [[40 + 700 + 1000, 40 + 70 + 1000]]


def test_a_state_among_others_is_worth_what_it_is_alone(tmp_path):
    """To the last bit: equal places are told apart by order alone."""
    nodes = nodes_of(tmp_path, "8000,8000,4,T4")
    pods = pods_of(tmp_path, *(f"{n * 97},{n},1,{n * 41}" for n in range(1, 24)))
    mix = typical(pods, nodes, 1.0, idle=True)
    room = Room(mix, np.sqrt(np.arange(1001.0)))
    chance = np.random.default_rng(1)
    kind, gpus = np.zeros(200, dtype=np.int64), np.sort(chance.integers(0, 1001, (200, 4)), axis=1)
    many = States(kind, chance.integers(0, 9000, 200), chance.integers(0, 9000, 200), gpus)
    together = room.of(many)[0]
    alone = [room.of(many[np.array([at])])[0][0] for at in range(200)]
    assert np.array_equal(together, alone)
