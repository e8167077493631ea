"""What AdaptDL's scheduler does, for processes of one machine: `... PYTHON`.

As many workers are started as the file `target` says. When that changes, or one of them ends, all are
told to make way, and started anew.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from bench.elastic.jobs.torchrun import free_port
from bench.elastic.settings import Settings

_GRACE_SECONDS = 30.0
_MAKES_WAY = 143


def main() -> None:
    """Until somebody ends this process."""
    settings, restarts = Settings.here(), 0
    while True:
        wanted = _wanted(settings.path)
        workers = _start(settings, wanted, restarts)
        while _wanted(settings.path) == wanted and all(each.poll() is None for each in workers):
            time.sleep(0.01)
        # the others of one that was killed may wait for it for ever
        lost = any(each.poll() not in (None, _MAKES_WAY) for each in workers)
        _end(workers, 0.0 if lost else _GRACE_SECONDS)
        restarts += 1


def _wanted(folder: Path) -> int:
    return int((folder / "target").read_text())


def _start(settings: Settings, count: int, restarts: int) -> list[subprocess.Popen[bytes]]:
    kept = settings.path / "kept"
    kept.mkdir(exist_ok=True)
    told = {
        "ADAPTDL_CHECKPOINT_PATH": str(kept),
        "ADAPTDL_JOB_ID": "bench",
        "ADAPTDL_MASTER_ADDR": "127.0.0.1",
        "ADAPTDL_MASTER_PORT": str(free_port()),
        "ADAPTDL_NUM_REPLICAS": str(count),
        "ADAPTDL_NUM_NODES": "1",
        "ADAPTDL_NUM_RESTARTS": str(restarts),
        # its checkpoints hold numbers of numpy, which torch has refused to load since 2.6
        "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1",
    }
    words = [sys.argv[1], "-W", "ignore", "-m", "bench.elastic.workers.under_adaptdl"]
    return [
        subprocess.Popen(
            words,
            env={
                **os.environ,
                **settings.environment(f"replica-{rank}"),
                **told,
                "ADAPTDL_REPLICA_RANK": str(rank),
            },
            stdin=subprocess.DEVNULL,
        )
        for rank in range(count)
    ]


def _end(workers: list[subprocess.Popen[bytes]], grace_seconds: float) -> None:
    for worker in workers:
        worker.send_signal(signal.SIGTERM)
    until = time.monotonic() + grace_seconds
    for worker in workers:
        try:
            worker.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait(10)


if __name__ == "__main__":
    main()
