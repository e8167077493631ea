"""Orthonormal columns, in place and the same on every rank that has the same numbers."""

# torch's linear algebra has no types
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import torch

__all__ = ["orthogonalise"]

_GRAM_SCHMIDT = 2
"""Up to this rank Gram-Schmidt is faster than a factorisation."""


def orthogonalise(matrix: torch.Tensor, spare: torch.Tensor | None = None) -> None:
    """The columns of `matrix`, shape (n, r) with r <= n, become orthonormal, in place.

    A zero column is first replaced by that of `spare` (same shape), where it is given: what has become
    zero would stay zero for ever. A column of which nothing but rounding is left beside those before it
    becomes zero, or any that is orthogonal to the others.
    """
    if spare is not None:
        lengths = torch.linalg.vector_norm(matrix, dim=0, keepdim=True)
        matrix.copy_(torch.where(lengths > 0, matrix, spare))
    if matrix.shape[1] > _GRAM_SCHMIDT:
        matrix.copy_(torch.linalg.qr(matrix)[0])
    else:
        _gram_schmidt(matrix)


def _gram_schmidt(matrix: torch.Tensor) -> None:
    # rounding is not a direction: normalised, it would be anything but orthogonal
    least = 16 * torch.finfo(matrix.dtype).eps * torch.linalg.vector_norm(matrix, dim=0)
    for at in range(matrix.shape[1]):
        column = matrix[:, at : at + 1]
        length = torch.linalg.vector_norm(column)
        # a comparison on the device: nothing waits for it
        column.copy_(torch.where(length > least[at], column / length, 0.0))
        if at + 1 < matrix.shape[1]:
            rest = matrix[:, at + 1 :]
            rest.sub_(column @ (column.T @ rest))
