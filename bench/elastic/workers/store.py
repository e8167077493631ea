"""A TCPStore by itself, which outlives the workers of the floor. It prints its port."""

from __future__ import annotations

import signal

from torch.distributed import TCPStore


def main() -> None:
    """Serve until SIGTERM."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    print(store.port, flush=True)
    signal.sigwait({signal.SIGTERM})


if __name__ == "__main__":
    main()
