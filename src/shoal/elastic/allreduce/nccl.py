"""A NCCL communicator of one epoch, made over the epoch's gloo group, and given up without waiting.

torch's own handling of NCCL's errors ends the process; here an error, or a peer that is gone, makes the
operation fail like any other. NCCL does not report that a peer is gone: kernels wait for it for ever,
until `abort`, which the news of a loss brings. Then they end, with whatever they have, so what ends
after an abort has failed. Where buckets are on the CPU no NCCL is needed.
"""

# torch's own types are partial
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol, cast

import torch
import torch.distributed as dist

__all__ = ["PATIENCE_SECONDS", "SETTINGS", "Bootstrap", "Communicator", "OnStream", "connect"]

PATIENCE_SECONDS = 10.0
"""So long an aborted operation may take to end."""

CONNECT_SECONDS = 20

SETTINGS = {
    # an error is ours to handle: none of these may end the process
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    "TORCH_NCCL_PROPAGATE_ERROR": "0",
    # host code inside NCCL holds the lock that `abort` needs: it gives up, and connects all at once
    "TORCH_NCCL_NONBLOCKING_TIMEOUT": str(CONNECT_SECONDS),
    "NCCL_RUNTIME_CONNECT": "0",
}
"""Environment variables, read when a communicator is made."""

_FOREVER = timedelta(days=30)
_FRAME_BYTES = 4096
_NAP_SECONDS = 50e-6
_SPINS = 20


class Work(Protocol):
    """What torch gives for an operation under way: only these two are safe to call."""

    def wait(self) -> bool:
        """Have the current stream wait for it; RuntimeError when it is known to have failed."""
        ...

    def is_completed(self) -> bool:
        """Whether it has ended on the device, or failed."""
        ...


class OnStream:
    """An operation on a device. Its `wait` is the host's: torch's own, when its time is up, aborts."""

    def __init__(self, work: Work, aborted: Callable[[], bool]) -> None:
        self._work = work
        self._aborted = aborted

    def wait(self, timeout: timedelta = _FOREVER) -> bool:
        """Until it has ended; what the current stream does next comes after it. RuntimeError when it
        fails, or the time is up."""
        deadline = time.monotonic() + timeout.total_seconds()
        spins = 0
        while not self._work.is_completed():
            if time.monotonic() > deadline:
                raise RuntimeError("the operation is still under way")
            spins += 1
            time.sleep(_NAP_SECONDS if spins > _SPINS else 0.0)
        # asked after it had ended: if not aborted by then, it ended by itself
        if self._aborted():
            raise RuntimeError("the communicator was aborted")
        return self._work.wait()

    def is_completed(self) -> bool:
        """Whether it has ended, or failed."""
        return self._work.is_completed()


class Communicator:
    """Of one epoch and device. `abort` from any thread; the rest from the thread that trains."""

    def __init__(self, backend: Any) -> None:
        """`backend`: torch's `ProcessGroupNCCL`, connected."""
        self._backend = backend
        self._lock = threading.Lock()
        self._ending: threading.Thread | None = None
        self.aborted = False

    @property
    def lives(self) -> bool:
        """Whether its memory is not given back yet."""
        return self._ending is None or self._ending.is_alive()

    def begin(self, ask: Callable[[dist.ProcessGroup], Any]) -> OnStream:
        """Begin an operation on tensors of its device."""
        return OnStream(ask(self._backend), lambda: self.aborted)

    def abort(self) -> None:
        """Everything under way ends, and has failed. Returns at once; idempotent."""
        self.aborted = True
        self._end_by("abort")

    def shut_down(self) -> None:
        """Nothing is under way here, nor is it to be at peers: the memory is given back behind the
        training. Returns at once."""
        self._end_by("shutdown")

    def join(self, timeout_seconds: float) -> None:
        """Wait for the end that was begun."""
        if self._ending is not None:
            self._ending.join(timeout_seconds)

    def _end_by(self, how: str) -> None:
        with self._lock:
            if self._ending is not None:
                return
            # neither may be waited for: the lock inside may be held by an operation that hangs
            self._ending = threading.Thread(
                target=getattr(self._backend, how), name=f"shoal-nccl-{how}", daemon=True
            )
            self._ending.start()


class Bootstrap(dist.Store):  # pyright: ignore[reportPrivateImportUsage]
    """How the ranks of a communicator learn its id: rank 0 sends it over the epoch's gloo group.

    Whatever rank 0 sets, the others get, in that order. Nothing of another epoch can be met.
    """

    def __init__(self, gloo: dist.ProcessGroup, rank: int) -> None:
        super().__init__()
        self._gloo = gloo
        self._rank = rank
        self._values: dict[str, bytes] = {}

    def set(self, key: str, value: bytes | str) -> None:
        """Send it to all, as rank 0; keep it, as another."""
        data = value.encode() if isinstance(value, str) else bytes(value)
        self._values[key] = data
        if self._rank != 0:
            return
        head = key.encode()
        frame = b"%4d%4d" % (len(head), len(data)) + head + data
        if len(frame) > _FRAME_BYTES:
            raise RuntimeError(f"{len(data)} bytes are no communicator's id")
        self._passed(frame.ljust(_FRAME_BYTES, b"\0"))

    def get(self, key: str) -> bytes:
        """What was set; as another than rank 0, wait until it is."""
        while key not in self._values:
            if self._rank == 0:
                raise RuntimeError(f"rank 0 has set no {key}")
            frame = self._passed(bytes(_FRAME_BYTES))
            of_key, of_data = int(frame[:4]), int(frame[4:8])
            self._values[frame[8 : 8 + of_key].decode()] = frame[8 + of_key : 8 + of_key + of_data]
        return self._values[key]

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Wait for all of them."""
        for key in keys:
            self.get(key)

    def check(self, keys: list[str]) -> bool:
        """Whether all are here already."""
        return all(key in self._values for key in keys)

    def add(self, key: str, value: int) -> int:
        """Count up, here alone."""
        total = int(self._values.get(key, b"0")) + value
        self._values[key] = str(total).encode()
        return total

    def set_timeout(self, timeout: timedelta) -> None:
        """The time is the builder's."""

    def _passed(self, frame: bytes) -> bytes:
        block = torch.frombuffer(bytearray(frame), dtype=torch.uint8)
        self._gloo.broadcast(block, root=0).wait(timedelta(seconds=CONNECT_SECONDS))
        return bytes(block.tolist())


def connect(gloo: dist.ProcessGroup, rank: int, size: int, device: torch.device) -> Communicator:
    """A communicator of the ranks of `gloo`, each on a device of its own; it has been used once.

    `SETTINGS` must be in the environment. Called in the builder's thread: returns or fails within about
    `CONNECT_SECONDS`.

    Raises:
        RuntimeError: it cannot be made.
    """
    options = dist.ProcessGroupNCCL.Options()
    options.config.blocking = 0
    options._timeout = _FOREVER  # pyright: ignore
    with torch.cuda.device(device), torch.cuda.stream(torch.cuda.Stream(device)):
        backend: Any = dist.ProcessGroupNCCL(Bootstrap(gloo, rank), rank, size, options)
        made = Communicator(backend)
        try:
            backend.eager_connect_single_device(device)
            ones = torch.ones(1, device=device)
            made.begin(lambda of: cast("Any", of).allreduce([ones])).wait(
                timedelta(seconds=CONNECT_SECONDS)
            )
            found = ones.item()
        except RuntimeError as error:
            made.abort()
            raise RuntimeError(f"NCCL cannot connect: {error}") from error
    if found != size:
        made.abort()
        raise RuntimeError(f"NCCL cannot add: {size} ones are {found:g}")
    return made
