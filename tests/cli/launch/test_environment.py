from __future__ import annotations

import pytest

from shoal.cli.failures import Usage
from shoal.cli.launch.job import task_environment

_CALLER = {
    "PATH": "/bin",
    "HOME": "/root",
    "VIRTUAL_ENV": "/v",
    "PYTHONPATH": "/p",
    "LC_ALL": "C",
    "OMP_NUM_THREADS": "2",
    "NCCL_DEBUG": "INFO",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "HF_TOKEN": "secret",
    "PYTHON_KEYRING_PASSWORD": "secret",
    "http_proxy": "http://user:secret@proxy",
    "SSH_AUTH_SOCK": "/tmp/agent",
    "CUDA_VISIBLE_DEVICES": "0",
    "RANK": "3",
    "MASTER_ADDR": "elsewhere",
    "SHOAL_HOME": "/h",
    "TMPDIR": "/mytmp",
}


def test_programs_libraries_and_tuning_are_passed_on() -> None:
    passed = task_environment(_CALLER, [])
    assert passed == {
        "PATH": "/bin",
        "HOME": "/root",
        "VIRTUAL_ENV": "/v",
        "PYTHONPATH": "/p",
        "LC_ALL": "C",
        "OMP_NUM_THREADS": "2",
        "NCCL_DEBUG": "INFO",
        "PYTHONUNBUFFERED": "1",
    }


def test_one_that_is_named_is_passed_on_whatever_it_is() -> None:
    passed = task_environment(_CALLER, [("HF_TOKEN", None), ("PATH", "/x"), ("EMPTY", "")])
    assert (passed["HF_TOKEN"], passed["PATH"], passed["EMPTY"]) == ("secret", "/x", "")


def test_the_callers_own_choice_of_buffering_stays() -> None:
    assert task_environment({"PYTHONUNBUFFERED": ""}, [])["PYTHONUNBUFFERED"] == ""


def test_one_that_is_not_there_is_an_error() -> None:
    with pytest.raises(Usage, match="NOPE"):
        task_environment(_CALLER, [("NOPE", None)])
