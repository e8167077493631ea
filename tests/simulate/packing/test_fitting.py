import numpy as np

from shoal.simulate.packing.fitting import typical
from tests.simulate.packing.small import nodes_of, pods_of, state

HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec"


def test_the_most_frequent_shapes_cover_so_much_of_the_pods(tmp_path):
    nodes = nodes_of(tmp_path, "8000,8000,2,T4")
    rows = ["1,1,1,500"] * 6 + ["2,1,0,0"] * 2 + ["3,1,1,1000"] * 1 + ["4,1,2,1000"] * 1
    pods = pods_of(tmp_path, *rows)
    mix = typical(pods, nodes, 0.9)
    assert mix.cpu.tolist() == [1, 3]  # of the last two, the one that came first
    assert mix.weight.tolist() == [6 / 9, 1 / 9]
    assert typical(pods, nodes, 1.0).weight.tolist() == [0.6, 0.1, 0.1]
    assert typical(pods, nodes, 0.6).shape.tolist() == [0]
    assert typical(pods, nodes, 1.0).gpu_milli.tolist() == [500, 1000, 2000]


def test_a_shape_fits_where_gpus_cores_and_model_do(tmp_path):
    nodes = nodes_of(tmp_path, "8000,8000,2,T4", "8000,8000,2,A10")
    rows = ["4000,9999,1,500,", "1,1,2,1000,", "1,1,1,500,A10"]
    mix = typical(pods_of(tmp_path, *rows, head=HEAD), nodes, 1.0)
    t4 = int(nodes.kind[0])

    def fits(*amounts):
        states = state(*amounts, kind=t4)
        return mix.fits(states, (states.gpus[:, None, :] >= mix.millis[:, None]).sum(axis=2))[0]

    assert np.array_equal(fits(4000, 1, 1000, 1000), [True, True, False])
    assert np.array_equal(fits(3999, 1, 500, 1000), [False, False, False])
    assert np.array_equal(fits(4000, 1, 500, 1000), [True, False, False])
    assert np.array_equal(fits(4000, 1, 499, 499), [False, False, False])
