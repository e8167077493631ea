"""One job's way through its epochs, by hand."""

import pytest

from shoal.simulate.errors import BadInput
from shoal.simulate.referee.profiles import Application, read_applications
from shoal.simulate.referee.training import Split, Training, split_batch, whole_nodes
from shoal.simulate.referee.workload import Submission, read_workload
from tests.simulate.measured import write_application


@pytest.fixture
def application(tmp_path):
    return Application(write_application(tmp_path / "toy"))


def training(application, *, replicas=1, batch=8):
    return Training(Submission("job", 0.0, application, replicas, batch))


def test_a_job_pauses_and_then_makes_a_step_a_second(application):
    job = training(application)
    job.place((0,), 30.0)
    job.advance(60.0)
    assert (job.progress, job.pause, job.service) == (30.0, 0.0, 60.0)
    job.advance(1000.0)
    assert job.completed == 230.0  # 2 epochs of 100 steps
    assert job.lasted == 230.0


def test_every_change_pauses_again_and_a_pause_is_not_added_to(application):
    job = training(application)
    job.place((0,), 30.0)
    job.advance(10.0)
    job.place((1,), 30.0)
    assert job.pause == 30.0
    job.place((1,), 30.0)
    assert job.changes == 2
    job.place((), 30.0)
    job.advance(100.0)
    assert (job.progress, job.replicas) == (0.0, 0)


def test_an_epochs_end_is_rounded_to_whole_seconds(application):
    job = training(application, replicas=2, batch=16)
    job.place((0, 0), 0.0)  # 2 x 8 samples: a step of 1.25 s that is worth one
    job.advance(1000.0)
    assert job.completed == 2 * 125.0
    assert job.service == 500.0


def test_noise_makes_a_larger_batch_worth_more(tmp_path):
    noisy = Application(write_application(tmp_path / "noisy", noise=3.0))
    assert noisy.efficiency(8, 0) == 1.0
    assert noisy.efficiency(16, 0) == pytest.approx(4 / 2.5)
    assert noisy.efficiency(12, 0) == pytest.approx(4 / 3)


@pytest.mark.parametrize(
    ("batch", "replicas", "split"),
    [
        (8, 1, Split(8, 0)),
        (16, 1, Split(8, 1)),  # more than the smallest batch on one: two passes
        (32, 1, Split(16, 1)),
        (32, 2, Split(16, 0)),
        (32, 3, Split(10, 0)),  # 11 each would be more than the largest batch
        (24, 5, Split(5, 0)),
    ],
)
def test_a_batch_is_split_in_the_fewest_passes(application, batch, replicas, split):
    assert split_batch(application, batch, replicas) == split


@pytest.mark.slow
def test_placements_are_alike_when_turned_and_others_are_interpolated(application):
    assert application.step_times((1, 0, 2), 8) == application.step_times((2, 1), 8)
    assert application.step_times((2,), 12) == (1.75, 0.25)
    step, sync = application.step_times((4, 4), 8)  # not listed: between those that are
    assert step == pytest.approx(1.25, abs=0.26)
    assert 0 < sync <= 0.25
    assert whole_nodes(11, 4) == (4, 4, 3)


def test_bad_profiles_are_named(tmp_path):
    folder = write_application(tmp_path / "toy")
    for file, text, said in [
        ("placements.csv", "placement,local_bsz,step_time\n1,4,1\n", "lacks the column sync_time"),
        ("placements.csv", "placement,local_bsz,step_time,sync_time\n1a,4,1,1\n", "no placement"),
        ("placements.csv", "placement,local_bsz,step_time,sync_time\n", "has no rows"),
        (
            "scalability.csv",
            "num_nodes,num_replicas,local_bsz,step_time,sync_time\n1,1,x,1,1\n",
            "float",
        ),
        ("validation-8.csv", "progress,iteration,grad_sqr,grad_var\n1,1,nan,1\n", "not finite"),
    ]:
        whole = (folder / file).read_text()
        (folder / file).write_text(text)
        with pytest.raises(BadInput, match=said):
            Application(folder)
        (folder / file).write_text(whole)
    (folder / "placements.csv").unlink()
    with pytest.raises(BadInput, match=r"placements\.csv"):
        Application(folder)
    with pytest.raises(BadInput, match="holds no folder"):
        read_applications(tmp_path)
    with pytest.raises(BadInput, match="not a folder"):
        read_applications(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name,time,application,num_replicas\n", "lacks the column batch_size"),
        ("name,time,application,num_replicas,batch_size\n", "lists no jobs"),
        (
            "name,time,application,num_replicas,batch_size\na,0,other,1,8\n",
            "line 2: no profile of 'other'",
        ),
        ("name,time,application,num_replicas,batch_size\na,-1,toy,1,8\n", "cannot be submitted at -1"),
        ("name,time,application,num_replicas,batch_size\na,nan,toy,1,8\n", "cannot be submitted at nan"),
        ("name,time,application,num_replicas,batch_size\na,0,toy,0,8\n", "are 1 at least"),
        (
            "name,time,application,num_replicas,batch_size\na,0,toy,one,8\n",
            "num_replicas is a whole number, not 'one'",
        ),
        (
            "name,time,application,num_replicas,batch_size\na,soon,toy,1,8\n",
            "time is a number of seconds, not 'soon'",
        ),
        ("name,time,application,num_replicas,batch_size\na,0,toy,1,64\n", "batches of 8 to 32"),
        ("name,time,application,num_replicas,batch_size\na,0,toy,1\n", "line 2"),
        ("name,time,application,num_replicas,batch_size\na,0,toy,1,8\na,1,toy,1,8\n", "more than once"),
    ],
)
def test_bad_workloads_are_named(tmp_path, text, said):
    write_application(tmp_path / "traces" / "toy")
    applications = read_applications(tmp_path / "traces")
    (tmp_path / "jobs.csv").write_text(text)
    with pytest.raises(BadInput, match=said):
        read_workload(tmp_path / "jobs.csv", applications)
