"""PowerSGD: each matrix of gradients as a product of two thin ones, found by one power iteration a step.

Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
Optimization", 2019, arXiv 1905.13727, algorithms 1 and 2, with warm start. For each matrix M (n x m) of
a parameter, with X = M + what is owed:

    P = sum over ranks of X Q;    P = orthogonalise(P);    Q = sum over ranks of X^T P;    M = P Q^T

What a rank owes is X - P (X^T P)^T, its own part, not X - M as in torch's hook. Summed over ranks the
two are the same, so the decoded gradients are; but there the differences between ranks' owings are never
decoded and grow with every step, so that a lost rank leaves a large error behind, and here they do not.
"""

# torch's linear algebra has no types
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch

from shoal.elastic.codecs.base import Bucket, Residuals, Rounds, views

__all__ = ["PowerSGD", "orthogonalise", "worthwhile"]

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


class PowerSGD:
    """See `Codec`. Q begins as random numbers drawn from (epoch, bucket), so all ranks have the same.

    Vectors, and matrices that would not shrink by `saving`, are summed as they are, together with P.
    """

    def __init__(self, rank: int = 4, *, saving: float = 2.0) -> None:
        """Raises ValueError for a rank below 1, or a saving below 1."""
        if rank < 1 or saving < 1:
            raise ValueError(f"PowerSGD of rank {rank} with a saving of {saving}: both begin at 1")
        self.rank = rank
        self._saving = saving
        self._epoch = 0
        self._residuals = Residuals()
        self._places: dict[int, _Place] = {}

    @property
    def name(self) -> str:
        """powersgd:RANK."""
        return f"powersgd:{self.rank}"

    @torch.no_grad()
    def exchange(self, bucket: Bucket) -> Rounds:
        """Two rounds: P with what is not compressed, then Q; one if nothing is compressed."""
        # 16 bits are too few for the products; they are rounded once, at the end
        work = bucket.flat if bucket.flat.dtype.itemsize > 2 else bucket.flat.float()
        place = self._place(bucket, work)
        tensors = views(work, bucket.shapes)
        if not place.wide:
            yield work
        else:
            if not place.sound:
                raise RuntimeError(
                    f"bucket {bucket.number}: an exchange did not end, and no new view has come"
                )
            self._residuals.pay(bucket, work)
            place.sound = False
            for at, whole in zip(place.narrow, place.wholes, strict=True):
                whole.copy_(tensors[at])
            matrices = [_matrix(tensors[at]) for at in place.wide]
            for matrix, p, q, spare in zip(matrices, place.ps, place.qs, place.spares, strict=True):
                orthogonalise(q, spare)
                torch.mm(matrix, q, out=p)
            yield place.first
            if not bool(torch.isfinite(place.first).all()):
                # everybody sees it: the gradients come through as they are, as a loss scaler expects
                yield work
                place.sound = True
            else:
                yield from self._second(bucket, work, place)
        if work is not bucket.flat:
            bucket.flat.copy_(work)

    def commit(self) -> None:
        """What was left out is owed."""
        self._residuals.commit()

    def rollback(self) -> None:
        """What was left out in this step is void."""
        self._residuals.rollback()

    def forget(self, number: int) -> None:
        """Nothing is owed of this bucket."""
        self._residuals.forget(number)

    def view_changed(self, epoch: int) -> None:
        """Q begins anew, from the epoch."""
        self._epoch = epoch
        self._places = {}

    def owed(self) -> dict[int, torch.Tensor]:
        """What did not fit into the rank."""
        return self._residuals.owed()

    def _place(self, bucket: Bucket, work: torch.Tensor) -> _Place:
        place = self._places.get(bucket.number)
        if place is None or place.key != _key(bucket, work):
            place = _lay_out(bucket, work, self.rank, self._saving)
            _draw(place, self._epoch, bucket.number)
            self._places[bucket.number] = place
        return place

    def _second(self, bucket: Bucket, work: torch.Tensor, place: _Place) -> Rounds:
        """P holds its sum: the round of Q, and the decoding."""
        tensors = views(work, bucket.shapes)
        matrices = [_matrix(tensors[at]) for at in place.wide]
        for matrix, p, q in zip(matrices, place.ps, place.qs, strict=True):
            orthogonalise(p)
            # X^T P transposed: reading the rows of X in order is ten times as fast on a CPU
            q.copy_(torch.mm(p.T, matrix).T)
        self._owe(bucket, work, place)
        yield place.second
        for matrix, p, q in zip(matrices, place.ps, place.qs, strict=True):
            torch.mm(p, q.T, out=matrix)
        for at, whole in zip(place.narrow, place.wholes, strict=True):
            tensors[at].copy_(whole)
        place.sound = True

    def _owe(self, bucket: Bucket, work: torch.Tensor, place: _Place) -> None:
        residual = views(self._residuals.owe(bucket, work), bucket.shapes)
        tensors = views(work, bucket.shapes)
        for at, p, q in zip(place.wide, place.ps, place.qs, strict=True):
            torch.addmm(_matrix(tensors[at]), p, q.T, alpha=-1, out=_matrix(residual[at]))
        for at in place.narrow:
            residual[at].zero_()


def worthwhile(rows: int, columns: int, rank: int, saving: float) -> bool:
    """Whether a matrix becomes at least `saving` times smaller."""
    return (rows + columns) * min(rows, columns, rank) * saving < rows * columns


@dataclass
class _Place:
    """What is sent of one bucket: `first` holds the parameters sent whole, then each P; `second` each Q.
    `ps`, `qs`, `wholes` are views of them; `sound`: no exchange is unfinished."""

    key: tuple[object, ...]
    wide: list[int]
    narrow: list[int]
    first: torch.Tensor
    second: torch.Tensor
    wholes: list[torch.Tensor]
    ps: list[torch.Tensor]
    qs: list[torch.Tensor]
    spares: list[torch.Tensor]
    sound: bool = True


def _key(bucket: Bucket, work: torch.Tensor) -> tuple[object, ...]:
    return bucket.shapes, work.dtype, work.device


def _matrix(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(tensor.shape[0], -1)


def _lay_out(bucket: Bucket, work: torch.Tensor, rank: int, saving: float) -> _Place:
    wide: list[int] = []
    narrow: list[int] = []
    of_p: list[tuple[int, ...]] = []
    of_q: list[tuple[int, ...]] = []
    for at, tensor in enumerate(views(work, bucket.shapes)):
        rows, columns = _matrix(tensor).shape if tensor.ndim > 1 and tensor.numel() else (1, 1)
        if worthwhile(rows, columns, rank, saving):
            wide.append(at)
            of_p.append((rows, min(rows, columns, rank)))
            of_q.append((columns, min(rows, columns, rank)))
        else:
            narrow.append(at)
    of_whole = [bucket.shapes[at] for at in narrow]
    sent = [torch.Size(shape).numel() for shape in (*of_whole, *of_p)]
    first = work.new_zeros(sum(sent))
    second = work.new_zeros(sum(n * r for n, r in cast("list[tuple[int, int]]", of_q)))
    parts = views(first, (*of_whole, *of_p))
    qs = views(second, of_q)
    return _Place(
        _key(bucket, work),
        wide,
        narrow,
        first,
        second,
        parts[: len(narrow)],
        parts[len(narrow) :],
        qs,
        [torch.empty_like(q) for q in qs],
    )


def _draw(place: _Place, epoch: int, number: int) -> None:
    """On the CPU: its numbers do not depend on the kind of device."""
    generator = torch.Generator().manual_seed((epoch << 20) + number)
    for q, spare in zip(place.qs, place.spares, strict=True):
        spare.copy_(torch.randn(q.shape, generator=generator))
        q.copy_(spare)
