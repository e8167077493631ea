from __future__ import annotations

from shoal.objects.job import ElasticStatus, Job, JobSpec, JobStatus, Recovery, Role, Runtime, WorldSize
from shoal.objects.job_text import elastic_lines, recovery_rows, sparkline
from shoal.objects.meta import Metadata


def job(said: ElasticStatus | None, runtime: Runtime = "elastic") -> Job:
    role = Role(command=("python", "x.py"), replicas=4, min_replicas=2)
    return Job(
        metadata=Metadata(name="train"),
        spec=JobSpec(roles=(role,), runtime=runtime),
        status=JobStatus(phase="Running", elastic=said),
    )


SIZES = (WorldSize(at=100.0, size=2), WorldSize(at=150.0, size=4), WorldSize(at=190.0, size=3))


def test_others_have_none() -> None:
    assert elastic_lines(job(None, "plain"), 0.0) == []


def test_before_the_first_report() -> None:
    assert elastic_lines(job(None), 0.0) == [("members", "none has reported yet, 2 to 4 are wanted")]


def test_all_of_it() -> None:
    said = ElasticStatus(
        attempt=1, state="running", world=3, step=1200, goodput=0.9923, step_seconds=0.021,
        recoveries=5, recovery_seconds=0.61, lost_steps=1, sizes=SIZES,
        last_recoveries=(Recovery(at=190.0, epoch=7, how="rerun", seconds=0.1234, world=3),),
    )  # fmt: skip
    lines = dict(elastic_lines(job(said), 200.0))
    assert lines["members"] == "3 of 2 to 4, running"
    assert lines["size over time"].endswith("2 > 4 > 3, in 1m40s")
    assert lines["step"] == "1200, 21ms each"
    assert lines["goodput"] == "99.2%"
    assert lines["recoveries"] == "5, 610ms together, 1 step lost"
    assert recovery_rows(job(said), 200.0) == [["10s", "7", "rerun", "0.123s", "3", "0"]]


def test_why_it_pauses() -> None:
    said = ElasticStatus(world=1, state="paused", message="1 of 2 members are there")
    assert elastic_lines(job(said), 200.0)[:2] == [
        ("members", "1 of 2 to 4, paused"), ("", "1 of 2 members are there"),
    ]  # fmt: skip


def test_the_size_over_time_as_bars() -> None:
    bars = sparkline(SIZES, 200.0, width=10)
    assert len(bars) == 10
    assert bars == "▅▅▅▅████▆▆"
    assert sparkline((WorldSize(at=5.0, size=0), WorldSize(at=5.0, size=0)), 5.0, width=3) == "▁▁▁"
    assert sparkline(SIZES, 150.0, width=2) == "▅█"
