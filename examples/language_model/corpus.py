"""The text to learn: the source of the standard library, which every Python brings along.

Characters are the printable ASCII ones, newline, and a tab that stands for four spaces, so that one
character is one level of indentation; anything else becomes one unknown character. Every twentieth file,
chosen by the digest of its name, is held out: the model never trains on it.
"""

from __future__ import annotations

import sysconfig
import zlib
from pathlib import Path

import torch

ALPHABET = "\n\t" + "".join(chr(code) for code in range(32, 127)) + "\x7f"
UNKNOWN = len(ALPHABET) - 1
_SKIP = {"test", "tests", "idle_test", "site-packages", "lib2to3", "__pycache__"}


def load() -> tuple[torch.Tensor, torch.Tensor]:
    """Training and held-out text as one-dimensional uint8 tensors of indices into ALPHABET."""
    root = Path(sysconfig.get_paths()["stdlib"])
    parts: dict[bool, list[bytes]] = {True: [], False: []}
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        if not _SKIP.intersection(name.parts):
            held_out = zlib.crc32(str(name).encode()) % 20 == 0
            parts[held_out].append(path.read_bytes())
    return _encode(b"\n".join(parts[False])), _encode(b"\n".join(parts[True]))


def decode(indices: list[int]) -> str:
    """The text that the indices spell."""
    text = "".join("?" if index == UNKNOWN else ALPHABET[index] for index in indices)
    return text.replace("\t", "    ")


def encode(text: str) -> list[int]:
    """Indices of the text's characters."""
    return _encode(text.encode()).tolist()


def _encode(source: bytes) -> torch.Tensor:
    table = bytearray([UNKNOWN] * 256)
    for index, character in enumerate(ALPHABET[:UNKNOWN]):
        table[ord(character)] = index
    text = source.replace(b"    ", b"\t").translate(bytes(table))
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)
