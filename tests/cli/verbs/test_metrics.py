from __future__ import annotations

import math

import pytest

from shoal.cli.charts import sparkline
from shoal.client import Client
from shoal.history.base import JobKey, Point
from tests.cli.conftest import Shell
from tests.server.harness import LiveServer, a_job


@pytest.fixture(autouse=True)
def reported(server: LiveServer, client: Client) -> None:
    job = client.create(a_job("train"))
    client.create(a_job("quiet"))
    key = JobKey(namespace="default", name="train", uid=job.metadata.uid)
    values = [("loss", 0.5), ("loss", 0.25), ("loss", math.nan), ("accuracy", 0.75)]
    server.history.append_points(
        [
            Point(job=key, name=name, value=value, at=9.0, step=n, role="worker", writer="w", sequence=n)
            for n, (name, value) in enumerate(values)
        ]
    )


def test_a_row_per_metric_and_task(sh: Shell) -> None:
    rows = [line.split() for line in sh("metrics", "job/train").lines]
    assert rows == [
        ["METRIC", "TASK", "LAST", "MIN", "MAX", "STEP", "POINTS", "HISTORY"],
        ["accuracy", "worker-0", "0.75", "0.75", "0.75", "3", "1", "▄"],
        ["loss", "worker-0", "nan", "0.25", "0.5", "2", "3", "█▁"],
    ]


def test_every_point(sh: Shell) -> None:
    items = sh("metrics", "train", "-o", "json").document["items"]
    assert [(each["name"], each["value"]) for each in items] == [
        ("loss", 0.5), ("loss", 0.25), ("loss", None), ("accuracy", 0.75),
    ]  # fmt: skip
    lines = sh("metrics", "train", "-o", "csv", "-m", "loss").lines
    assert lines[0] == "name,value,step,at,role,index,incarnation,order"
    assert [line.split(",")[:3] for line in lines[1:]] == [
        ["loss", "0.5", "0"], ["loss", "0.25", "1"], ["loss", "", "2"],
    ]  # fmt: skip


def test_a_job_without_points_gets_the_remedy(sh: Shell) -> None:
    said = sh("metrics", "quiet")
    assert (said.code, said.out) == (0, "")
    assert "from shoal import report" in said.err
    assert sh("metrics", "nope").code == 3
    assert sh("metrics", "node/n1").code == 2


def test_a_sparkline_has_a_bar_per_part() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert len(sparkline(list(range(1000)))) == 24
    assert sparkline([1.0, None, 3.0]) == "▁ █"
    assert sparkline([]) == ""
    assert sparkline([None]) == " "
