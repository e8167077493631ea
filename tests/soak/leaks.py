"""What a job leaves behind: processes, and with them ports; shared memory; temporary files."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path

from shoal.elastic.checkpoint.memory import place_for

__all__ = ["Marked"]

_NAME = "SHOAL_SOAK_MARK"
_TORCH_CACHE = "torchinductor_"
"""One for each user: torch makes it when it is imported, and means it to stay."""


@dataclass(frozen=True)
class Marked:
    """A job whose processes bear a mark in their environment, which their children inherit: so they are
    told from those of others on the same machine. No port is held but by a process."""

    folder: Path
    mark: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def environment(self) -> dict[str, str]:
        """For every process of the job: its mark, and a place of its own for temporary files."""
        temporary = self.folder / "temporary"
        temporary.mkdir(parents=True, exist_ok=True)
        return {_NAME: self.mark, "TMPDIR": str(temporary)}

    def processes(self) -> dict[int, str]:
        """Those that live: command line by process id."""
        wanted = f"{_NAME}={self.mark}".encode()
        found: dict[int, str] = {}
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # it has ended meanwhile, or is another's
        return found

    def shared_memory(self, pids: set[int]) -> list[str]:
        """The place of the job's checkpoints, and what is named after one of these processes."""
        place = place_for(self.folder / "checkpoints", wanted=True)
        found = [str(place)] if place is not None and place.exists() else []
        named = [
            path
            for path in Path("/dev/shm").iterdir()
            if {int(word) for word in path.name.split("_") if word.isdigit()} & pids
        ]
        return found + [str(path) for path in named]

    def left(self, pids: set[int]) -> list[str]:
        """What is there though the job is over, a line each; `pids`: all processes that it had."""
        return [
            *(f"process {pid}: {words}" for pid, words in self.processes().items()),
            *(f"shared memory {path}" for path in self.shared_memory(pids)),
            *(
                f"temporary {path}"
                for path in (self.folder / "temporary").iterdir()
                if not path.name.startswith(_TORCH_CACHE)
            ),
        ]
