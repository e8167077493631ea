"""Which of the caller's variables a task of `shoal run` gets.

A task must find the same programs and libraries as the shell it was started from, and must not be
handed the shell's secrets: a Job is stored, and whoever may read the Job may read its environment. So
this is a list of what is passed, not of what is held back; `--env NAME` passes one more on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shoal.cli.failures import Usage

__all__ = ["task_environment"]

_NAMES = frozenset((
    # who and where
    "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ",
    # which programs and libraries
    "PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "LD_LIBRARY_PATH", "LD_PRELOAD",
    "DYLD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH",
    # where things are cached, and which certificates count
    "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "HF_HOME", "TORCH_HOME",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
    "NO_COLOR", "FORCE_COLOR",
))  # fmt: skip
_FAMILIES = (
    "LC_", "PYTHON", "OMP_", "MKL_", "KMP_", "OPENBLAS_", "NCCL_", "GLOO_", "UCX_",
    "TORCH_", "PYTORCH_", "XLA_",
)  # fmt: skip
_SECRET_WORDS = ("TOKEN", "SECRET", "PASSW", "CREDENTIAL", "API_KEY", "APIKEY", "ACCESS_KEY", "PRIVATE")


def task_environment(
    caller: Mapping[str, str], said: Iterable[tuple[str, str | None]]
) -> dict[str, str]:
    """The variables of a task: those passed on by default, then what `--env` says.

    `said` holds (name, value), and (name, None) for a variable of the caller's to pass on.

    Raises:
        Usage: a variable is to be passed on that the caller does not have.
    """
    passed = {name: value for name, value in sorted(caller.items()) if _passes(name)}
    passed.setdefault("PYTHONUNBUFFERED", "1")  # or a line would wait in the task for a full buffer
    for name, value in said:
        if value is None and name not in caller:
            raise Usage(
                f"--env {name}: there is no such variable here", hint=f"write --env {name}=VALUE"
            )
        passed[name] = caller[name] if value is None else value
    return passed


def _passes(name: str) -> bool:
    if any(word in name.upper() for word in _SECRET_WORDS):
        return False
    return name in _NAMES or name.startswith(_FAMILIES)
