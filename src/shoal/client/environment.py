"""Which of the caller's variables a task gets when its job was made from a command.

A task must find the same programs and libraries as the shell or program it was started from, and must
not be handed its secrets: a Job is stored, and whoever may read the Job may read its environment. So
this is a list of what is passed, not of what is held back.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["passed_on"]

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


def passed_on(caller: Mapping[str, str]) -> dict[str, str]:
    """The variables of `caller` that a task gets, and unbuffered output for Python."""
    passed = {name: value for name, value in sorted(caller.items()) if _passes(name)}
    passed.setdefault("PYTHONUNBUFFERED", "1")  # or a line would wait in the task for a full buffer
    return passed


def _passes(name: str) -> bool:
    if any(word in name.upper() for word in _SECRET_WORDS):
        return False
    return name in _NAMES or name.startswith(_FAMILIES)
