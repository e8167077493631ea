"""`job.allreduce`: a sum over the workers of whatever a script wants, made again after a loss."""

# torch's own types are partial
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import torch

from shoal.elastic.errors import GroupFailed
from shoal.elastic.training import Training

__all__ = ["Summing"]


class Summing:
    """Of one process. What is summed is kept until the sum is there, in memory that is used again."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._kept = torch.empty(0, dtype=torch.uint8)

    def add_up(self, tensor: torch.Tensor) -> torch.Tensor:
        """In place; see `Job.allreduce`."""
        training = self._training
        while training.group is not None and training.size > 1:
            kept = self._keep(tensor)
            # a view is not what an operation that never ends may go on writing into
            target = tensor if tensor.is_contiguous() and not tensor._is_view() else tensor.clone()
            try:
                training.group.wait(training.group.sum(target))
            except GroupFailed:
                if training.current_group.stuck and target is tensor:
                    tensor.set_(torch.empty_like(tensor))  # pyright: ignore
                tensor.copy_(kept)
                training.recover()
                continue
            if target is not tensor:
                tensor.copy_(target)
            break
        return tensor

    def _keep(self, tensor: torch.Tensor) -> torch.Tensor:
        if self._kept.numel() < tensor.nbytes or self._kept.device != tensor.device:
            self._kept = torch.empty(tensor.nbytes, dtype=torch.uint8, device=tensor.device)
        return self._kept[: tensor.nbytes].view(tensor.dtype).view(tensor.shape).copy_(tensor)
