from __future__ import annotations

from shoal.objects.job import Role

from .conftest import UID, a_job, told_of


def of_paddle(env: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith("PADDLE_")}


def test_collective() -> None:
    told = told_of(a_job("paddle"), ("worker", 0), ("worker", 2), attempt=2)
    assert of_paddle(told[1].env) == {
        "PADDLE_JOB_ID": f"{UID}-2",
        "PADDLE_NNODES": "2",
        "PADDLE_MASTER": "worker-0.example:2222",
        "PADDLE_TRAINER_ID": "1",
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_TRAINER_ENDPOINTS": "worker-0.example:2222,worker-2.example:2222",
        "PADDLE_CURRENT_ENDPOINT": "worker-2.example:2222",
    }


def test_parameter_servers() -> None:
    job = a_job("paddle", Role(name="worker", replicas=2), Role(name="master"))
    told = told_of(job, ("master", 0), ("worker", 0), ("worker", 1))
    common = {
        "PADDLE_JOB_ID": f"{UID}-1",
        "PADDLE_NNODES": "3",
        "PADDLE_MASTER": "master-0.example:2222",
    }
    assert of_paddle(told[0].env) == {**common, "PADDLE_SERVER_NUM": "1"}
    assert of_paddle(told[1].env) == of_paddle(told[2].env) == {**common, "PADDLE_TRAINER_NUM": "1"}
