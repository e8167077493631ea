"""Jobs, groups, and real processes that are started with what they are told."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from shoal import rendezvous
from shoal.objects.job import ArraySpec, Job, JobSpec, Restart, Role
from shoal.objects.meta import Metadata
from shoal.objects.task import (
    RENDEZVOUS_FOLDER,
    Endpoint,
    Placement,
    TaskBootstrap,
    TaskSpec,
    task_name,
)

UID = "0a1b2c3d-1111"


def a_job(runtime: str, *roles: Role, array: str = "", **restart: Any) -> Job:
    spec = JobSpec(
        roles=roles or (Role(replicas=3, command=("train",)),),
        runtime=runtime,  # type: ignore[arg-type]
        array=ArraySpec(indices=array) if array else None,
        restart=Restart(**restart),
    )
    return Job(metadata=Metadata(name="digits", namespace="team-a", uid=UID), spec=spec)


def a_spec(role: str, index: int, attempt: int = 1, incarnation: int = 1) -> TaskSpec:
    return TaskSpec(
        namespace="team-a", name=task_name("digits", UID, role, index, incarnation), job="digits",
        job_uid=UID, role=role, index=index, attempt=attempt, incarnation=incarnation,
        placement=Placement(node="node-1"), command=("train",),
    )  # fmt: skip


def an_endpoint(role: str, index: int, host: str = "", port: int = 0, **ports: int) -> Endpoint:
    return Endpoint(
        role=role, index=index, task=task_name("digits", UID, role, index, 1), node="node-1",
        host=host or f"{role}-{index}.example", ports={"rendezvous": port or 2222, **ports},
    )  # fmt: skip


def told_of(
    job: Job, *members: tuple[str, int], attempt: int = 1, **endpoint: Any
) -> list[TaskBootstrap]:
    """What the members, which are the whole group, are told, in their order."""
    specs = tuple(a_spec(role, index, attempt) for role, index in members)
    endpoints = tuple(an_endpoint(role, index, **endpoint) for role, index in members)
    told = rendezvous.render(job, attempt, specs, endpoints)
    return [told[spec.name] for spec in specs]


class Group:
    """Real processes on this machine, one per task, each told as the platform would tell it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sockets: list[socket.socket] = []
        self.processes: list[subprocess.Popen[str]] = []

    def start(
        self, job: Job, members: list[tuple[str, int]], *, env: Mapping[str, str], command: list[str]
    ) -> None:
        """Start them all; a member's command may be replaced by what it is told."""
        specs = tuple(a_spec(role, index) for role, index in members)
        endpoints = tuple(
            an_endpoint(role, index, host="127.0.0.1", port=self._free_port()) for role, index in members
        )
        told = rendezvous.render(job, 1, specs, endpoints)
        for held in self.sockets:
            held.close()
        for spec in specs:
            mine = told[spec.name]
            place = self.folder / f"{spec.role}-{spec.index}"
            place.mkdir()
            for name, text in mine.files.items():
                (place / name).write_text(text)
                (place / name).chmod(0o700)
            environment = {
                "PATH": os.environ["PATH"], "HOME": str(self.folder), "SHOAL_RENDEZVOUS": str(place),
                **{name: v.replace(RENDEZVOUS_FOLDER, str(place)) for name, v in mine.env.items()},
                **env,
            }  # fmt: skip
            process = subprocess.Popen(
                mine.command or command, env=environment, cwd=place, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            self.processes.append(process)

    def outputs(self, timeout_seconds: float = 90.0) -> list[str]:
        """What each has written once all have ended, which they must with code 0."""
        deadline = time.monotonic() + timeout_seconds
        texts = [p.communicate(timeout=max(0.1, deadline - time.monotonic()))[0] for p in self.processes]
        codes = [process.returncode for process in self.processes]
        assert codes == [0] * len(codes), "\n".join(texts)
        return texts

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, 9)
                process.wait(10.0)
            if process.stdout is not None:
                process.stdout.close()

    def _free_port(self) -> int:
        """Held until all are known, so that no two members get the same."""
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        self.sockets.append(sock)
        return sock.getsockname()[1]


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    group = Group(tmp_path)
    yield group
    group.close()


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]
