"""A name for a job that was given none: it says what runs, and is not taken."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

__all__ = ["job_name"]

_INTERPRETERS = re.compile(
    r"(python|pypy|node|ruby|perl)[0-9.]*|bash|sh|zsh|env|nice|nohup|time|torchrun|uv|run|mpirun|mpiexec"
)
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""Without vowels, so that no name spells a word."""


def job_name(command: Sequence[str]) -> str:
    """A name that says what runs and is not taken: `train-x7k2q` for `python train.py`."""
    suffix = "".join(_LETTERS[byte % len(_LETTERS)] for byte in os.urandom(5))
    return f"{_stem(command)}-{suffix}"


def _stem(command: Sequence[str]) -> str:
    clean = re.sub(r"[^a-z0-9]+", "-", _program(command).lower()).strip("-")[:40].strip("-")
    return clean or "job"


def _program(command: Sequence[str]) -> str:
    """The script, module or program that the words run; the interpreter where they hold a program."""
    words = iter(command)
    for word in words:
        name = Path(word).name
        if word == "-c":
            break
        if word == "-m":
            return next(words, "").rpartition(".")[2]
        if not word.startswith("-") and "=" not in word and not _INTERPRETERS.fullmatch(name):
            return name.partition(".")[0]
    return Path(command[0]).name
