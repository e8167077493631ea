"""Which streams of a GPU have written into a bucket: its collective has to come after all of them.

Hooks run on the stream on which their parameter was used. A model that computes on several fills one
bucket from several, and a collective waits only for the one that is current at its launch.
"""

from __future__ import annotations

import torch

__all__ = ["Writers"]


class Writers:
    """Of the buckets on one device. On the CPU there is nothing to order."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._on_gpu = device.type == "cuda"
        self._of: dict[int, set[torch.cuda.Stream]] = {}

    def wrote(self, bucket: int) -> None:
        """The current stream has written into this bucket."""
        if self._on_gpu:
            self._of.setdefault(bucket, set()).add(torch.cuda.current_stream(self._device))

    def join(self, bucket: int) -> None:
        """What the current stream does next comes after everything that was written into the bucket."""
        if self._on_gpu:
            here = torch.cuda.current_stream(self._device)
            for stream in self._of.pop(bucket, ()):
                if stream != here:
                    here.wait_stream(stream)
