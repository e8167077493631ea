from __future__ import annotations

import stat
from pathlib import Path

import msgspec
import pytest

from shoal.objects.errors import Unauthenticated
from shoal.objects.job import Job
from shoal.server.auth import JobTokens, is_job_token
from tests.server.harness import a_job


def job(name: str = "train", uid: str = "u-1") -> Job:
    made = a_job(name)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, uid=uid))


@pytest.fixture
def tokens(tmp_path: Path) -> JobTokens:
    return JobTokens.of(tmp_path)


def test_a_jobs_token_says_which_job(tokens: JobTokens) -> None:
    token = tokens.mint(job(), attempt=3)
    assert is_job_token(token)
    assert tokens.job_of(token) == ("default", "train", "u-1", 3)


def test_the_key_outlives_the_process_and_is_private(tmp_path: Path) -> None:
    token = JobTokens.of(tmp_path).mint(job())
    assert JobTokens.of(tmp_path).job_of(token)[1] == "train"
    for key in (tmp_path / "jobs.key", tmp_path / "jobs.copy.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert len(key.read_bytes()) == 32


def test_another_server_does_not_know_it(tmp_path: Path, tokens: JobTokens) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(Unauthenticated):
        JobTokens.of(tmp_path / "other").job_of(tokens.mint(job()))


def test_nothing_of_a_token_can_be_changed(tokens: JobTokens) -> None:
    token, other = tokens.mint(job()), tokens.mint(job("other"))
    claim, seal = token.split(".")
    forged = [
        f"{other.split('.')[0]}.{seal}",
        claim,
        f"{claim}.",
        f".{seal}",
        f"{claim}.{seal[:-4]}",
        f"{claim}.****",
        "shoal-job-",
        "shoal-job-é.é",
    ]
    for text in forged:
        with pytest.raises(Unauthenticated):
            tokens.job_of(text)


@pytest.mark.parametrize("damaged", [b"", b"short", b"This is text, and not a key at all."])
def test_a_damaged_key_is_replaced_by_its_copy(tmp_path: Path, damaged: bytes) -> None:
    token = JobTokens.of(tmp_path).mint(job())
    (tmp_path / "jobs.key").write_bytes(damaged)
    assert JobTokens.of(tmp_path).job_of(token).uid == "u-1"
    (aside,) = tmp_path.glob("jobs.key.damaged-*")
    assert aside.read_bytes() == damaged


def test_without_its_copy_another_key_is_made(tmp_path: Path) -> None:
    token = JobTokens.of(tmp_path).mint(job())
    for name in ("jobs.key", "jobs.copy.key"):
        (tmp_path / name).write_bytes(b"short")
    again = JobTokens.of(tmp_path)
    with pytest.raises(Unauthenticated):
        again.job_of(token)
    assert again.job_of(again.mint(job())).uid == "u-1"
