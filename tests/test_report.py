"""`shoal.report` in programs of their own, against a real server in this process."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.history.base import JobKey, Point
from shoal.objects.errors import NotFound, Unavailable
from shoal.server.metric_points import BURST_POINTS, Batch, MetricIntake, ReportedPoint
from shoal.testing.clock import VirtualClock
from tests.server.harness import LiveServer, a_job

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path / "home")
    with live.client() as client:
        client.create(a_job())
    (tmp_path / "token").write_text(live.token_of("default", "train"))
    yield live
    live.close()


def environment(folder: Path, **variables: str) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")},
        "SHOAL_API": f"unix://{folder}/home/tasks/api.sock",
        "SHOAL_TOKEN_FILE": str(folder / "token"),
        "SHOAL_ROLE": "worker",
        "SHOAL_INDEX": "2",
        "SHOAL_INCARNATION": "3",
        **variables,
    }


def program(text: str, env: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(text)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=env, text=True, stdin=pipe, stdout=pipe, stderr=pipe)


def run(text: str, env: dict[str, str]) -> tuple[str, str]:
    with program(text, env) as child:
        out, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    return out, err


def points(server: LiveServer) -> tuple[Point, ...]:
    return server.history.points("default", job="train")


def test_points_are_with_the_platform_when_the_program_has_ended(
    server: LiveServer, tmp_path: Path
) -> None:
    out, err = run(
        """
        from shoal import report
        report(loss=0.5, accuracy=1, step=7)
        report({"val/loss": float("nan")})
        """,
        environment(tmp_path),
    )
    assert (out, err) == ("", "")
    found = points(server)
    assert [(each.name, each.step) for each in found] == [
        ("loss", 7),
        ("accuracy", 7),
        ("val/loss", None),
    ]
    assert (found[0].value, found[1].value) == (0.5, 1.0)
    assert math.isnan(found[2].value)
    assert {(each.role, each.index, each.incarnation) for each in found} == {("worker", 2, 3)}


def test_every_point_is_kept_once_while_the_server_restarts(server: LiveServer, tmp_path: Path) -> None:
    text = """
    import sys
    from shoal import report
    for step in range(3000):
        report(loss=step, step=step)
        if step in (1000, 2000):
            print(step, flush=True)
            sys.stdin.readline()
    import shoal.report
    assert shoal.report.flush(60), "not flushed"
    """
    with program(text, environment(tmp_path)) as child:
        assert child.stdin is not None and child.stdout is not None
        assert child.stdout.readline() == "1000\n"
        server.stop()
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "2000\n"
        server.start()
        _, err = child.communicate("\n", timeout=60)
    assert (child.returncode, err) == (0, "")
    assert [each.step for each in points(server)] == list(range(3000))


def test_a_batch_that_is_sent_again_is_kept_once(server: LiveServer) -> None:
    batch = {
        "role": "worker", "index": 0, "incarnation": 1, "name": "p",
        "points": [[1, "loss", 0.5, 3, 9.0]],
    }  # fmt: skip
    headers = {"Authorization": f"Bearer {server.token_of('default', 'train')}"}
    with server.client() as client:
        for added in (1, 0):
            answer = client.transport.request(
                "POST", "/api/v1/metrics", body=json.dumps(batch).encode(), headers=headers
            )
            assert json.loads(answer.body) == {"added": added}
    assert len(points(server)) == 1


def test_controllers_are_notified(server: LiveServer, tmp_path: Path) -> None:
    context = server.with_caches()
    context.metrics.sync()
    notified = threading.Thread(target=context.metrics.ready.wait)
    notified.start()
    run("from shoal import report; report(loss=1)", environment(tmp_path))
    notified.join(20)
    assert not notified.is_alive()


def test_without_a_server_the_program_ends_in_time_and_says_what_was_dropped(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("x")
    out, err = run(
        """
        import time
        import shoal.report
        from shoal import report
        shoal.report.FLUSH_SECONDS = 0.3
        for step in range(shoal.report.QUEUE_POINTS + 500):
            report(loss=step, step=step)
        """,
        environment(tmp_path),
    )
    assert out == ""
    assert "10500 metric points were dropped" in err
    assert err.count("\n") == 1


def test_a_refused_token_is_said_once(server: LiveServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("shoal-job-none.none")
    text = "from shoal import report, __version__\nfor n in range(5000): report(loss=n)"
    _, err = run(text, environment(tmp_path))
    assert err.count("points are refused") == 1
    assert "5000 metric points were dropped" in err


def test_outside_of_shoal_points_go_to_a_file_or_nowhere(tmp_path: Path) -> None:
    bare = environment(tmp_path, SHOAL_API="")
    assert run("from shoal import report; report(loss=1)", bare) == ("", "")
    file = tmp_path / "points.jsonl"
    text = "from shoal import report; report(loss=1, step=4); report(b=float('inf'))"
    assert run(text, {**bare, "SHOAL_REPORT_FILE": str(file)}) == ("", "")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(each["name"], each["value"], each["step"]) for each in lines] == [
        ("loss", 1.0, 4),
        ("b", "Infinity", None),
    ]


def test_a_value_that_is_no_number_does_not_fail_the_program(server: LiveServer, tmp_path: Path) -> None:
    text = """
    from shoal import report
    for _ in range(3):
        report(loss="high", accuracy=0.5, step="third")
    """
    _, err = run(text, environment(tmp_path))
    assert err.count("metric loss is not reported: 'high' is no number") == 1
    assert err.count("a step is a whole number, not 'third'") == 1
    assert [(each.name, each.step) for each in points(server)] == [("accuracy", None)] * 3


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_report_too(server: LiveServer, tmp_path: Path, method: str) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        textwrap.dedent(f"""
        import multiprocessing, warnings
        warnings.simplefilter("ignore")  # fork beside a thread is what is tested
        from shoal import report

        def child(number):
            report(child=number, step=number)

        if __name__ == "__main__":
            report(parent=0)
            context = multiprocessing.get_context({method!r})
            children = [context.Process(target=child, args=(n,)) for n in range(3)]
            for each in children:
                each.start()
            for each in children:
                each.join()
            report(parent=1)
        """)
    )
    command = [sys.executable, str(path)]
    done = subprocess.run(
        command, env=environment(tmp_path), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = points(server)
    assert sorted(each.value for each in found if each.name == "child") == [0.0, 1.0, 2.0]
    assert [each.value for each in found if each.name == "parent"] == [0.0, 1.0]
    assert len({each.writer for each in found}) == 4


def test_a_job_that_reports_without_end_is_slowed_down(server: LiveServer) -> None:
    clock = VirtualClock()
    intake, job = MetricIntake(clock), a_job()
    many = tuple(ReportedPoint(n, "loss", 0.0, None, 0.0) for n in range(int(BURST_POINTS)))
    batch = Batch("worker", 0, 1, "p", many)
    intake.take(job, batch, server.history, None)
    with pytest.raises(Unavailable, match="more than 5000 metric points a second"):
        intake.take(job, batch, server.history, None)
    clock.advance(10.0)
    assert intake.take(job, batch, server.history, None) == 0


def test_the_name_is_a_function_in_either_order(tmp_path: Path) -> None:
    text = """
    import sys
    import shoal
    assert "shoal.report" not in sys.modules
    from shoal import report
    import shoal.report
    from shoal import report as again
    report(loss=1), again(loss=1), shoal.report(loss=1), shoal.report.report(loss=1)
    heavy = {"msgspec", "yaml", "numpy", "sqlalchemy", "fastapi"} & set(sys.modules)
    assert not heavy, heavy
    """
    assert run(text, environment(tmp_path, SHOAL_API="")) == ("", "")


def test_the_client_reads_all_pages_also_of_a_job_that_is_gone(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.server.routers.metric_routes._MOST_POINTS", 7)
    gone = JobKey(namespace="default", name="gone", uid="u1")
    server.history.append_points(
        [Point(job=gone, name="loss", value=n, at=1.0, writer="w", sequence=n) for n in range(20)]
    )
    with server.client() as client:
        assert [each.value for each in client.metrics("default", "gone")] == list(range(20))
        assert list(client.metrics("default", "train")) == []
        with pytest.raises(NotFound, match="no job never"):
            list(client.metrics("default", "never"))
