from __future__ import annotations

import itertools

import pytest

from shoal.objects.errors import Forbidden
from shoal.objects.kinds import JOB, NODE, QUEUE
from shoal.store.authorise import Action, authorise, require
from shoal.store.base import SYSTEM, Actor, Verb

TASK = Actor("job:team/mine", ("job",), ("team", "mine", "u"))
OWNER = Actor("owner", ("admin",))
VERBS: tuple[Verb, ...] = (
    "create", "get", "list", "update", "patch_status", "delete", "watch", "lease",
)  # fmt: skip
ACTIONS: tuple[Action, ...] = (
    "tasks", "exec", "logs", "explain", "history", "usage", "tokens", "server",
)  # fmt: skip


def test_people_and_the_platform_may_do_everything() -> None:
    for actor, verb, kind in itertools.product((OWNER, SYSTEM), VERBS, (JOB, QUEUE, NODE)):
        authorise(actor, verb, kind, "team", "any")
    for action in ACTIONS:
        require(OWNER, action, "team", "any")


def test_a_jobs_token_reads_that_job_and_nothing_else() -> None:
    authorise(TASK, "get", JOB, "team", "mine")
    allowed = {("get", "Job", "team", "mine")}
    places = [("team", "mine"), ("team", "other"), ("other", "mine"), ("team", ""), ("", "")]
    for verb, kind, (namespace, name) in itertools.product(VERBS, (JOB, QUEUE, NODE), places):
        if (verb, kind.name, namespace, name) in allowed:
            continue
        with pytest.raises(Forbidden):
            authorise(TASK, verb, kind, namespace, name)


def test_a_jobs_token_runs_commands_beside_its_own_tasks_only() -> None:
    for action in ACTIONS:
        for namespace, name in (("team", "mine"), ("team", "other"), ("other", "mine"), ("", "")):
            if action in ("tasks", "exec") and (namespace, name) == ("team", "mine"):
                require(TASK, action, namespace, name)
                continue
            with pytest.raises(Forbidden):
                require(TASK, action, namespace, name)
