"""An elastic job's tasks: workers are told of one another, and the coordinator is nobody's peer."""

from __future__ import annotations

import msgspec

from shoal.objects import codec
from shoal.objects.elastic import with_coordinator
from shoal.objects.job import Job, JobSpec, Role
from shoal.objects.meta import Metadata
from shoal.objects.task import Endpoint, Placement, TaskBootstrap, TaskSpec
from shoal.rendezvous import render


def told(workers: int = 2, coordinator: bool = True) -> dict[str, TaskBootstrap]:
    worker = Role(command=("python", "x.py"), replicas=4, min_replicas=1)
    spec = JobSpec(roles=(worker,), runtime="elastic")
    if coordinator:
        spec = with_coordinator(spec, "python")
    members = [*([("coordinator", 0)] if coordinator else []), *(("worker", i) for i in range(workers))]
    specs = tuple(
        TaskSpec(
            namespace="default", name=f"{role}-{index}", job="j", job_uid="u", role=role, index=index,
            attempt=2, incarnation=1, placement=Placement(node="n"), command=("x",),
        )
        for role, index in members
    )  # fmt: skip
    endpoints = tuple(
        Endpoint(
            role=role, index=index, task=f"{role}-{index}", node="n", host="127.0.0.1",
            ports={"rendezvous": 9000 + position},
        )
        for position, (role, index) in enumerate(members)
    )  # fmt: skip
    job = Job(metadata=Metadata(name="j", uid="u"), spec=spec)
    return render(job, 2, specs, endpoints)


def test_ranks_are_the_workers_alone() -> None:
    said = told()
    for index in range(2):
        env = said[f"worker-{index}"].env
        assert (env["RANK"], env["WORLD_SIZE"], env["SHOAL_WORLD_SIZE"]) == (str(index), "2", "2")
        assert env["MASTER_PORT"] == "9001"
        tasks = msgspec.json.decode(env["SHOAL_TASKS"])
        assert [each["index"] for each in tasks["worker"]] == [0, 1]
        assert tasks["coordinator"][0]["ports"] == {"rendezvous": 9000}
        assert env["SHOAL_RUNTIME"] == "elastic"


def test_workers_are_told_the_same_with_and_without_a_coordinator() -> None:
    def told_of_peers(said: dict[str, TaskBootstrap], name: str) -> dict[str, str]:
        return {
            key: value
            for key, value in said[name].env.items()
            if not key.endswith("PORT") and key not in ("SHOAL_TASKS", "SHOAL_PORT_RENDEZVOUS")
        }

    for name in ("worker-0", "worker-1"):
        assert told_of_peers(told(), name) == told_of_peers(told(coordinator=False), name)


def test_the_coordinator_knows_where_to_listen_and_no_rank() -> None:
    env = told()["coordinator-0"].env
    assert (env["SHOAL_HOST"], env["SHOAL_PORT_RENDEZVOUS"]) == ("127.0.0.1", "9000")
    assert (env["SHOAL_JOB"], env["SHOAL_ROLE"], env["SHOAL_ATTEMPT"]) == ("j", "coordinator", "2")
    assert not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "PET_NNODES"} & env.keys()


def test_what_is_told_can_be_sent() -> None:
    for each in told().values():
        assert codec.decode(codec.encode(each), TaskBootstrap) == each
