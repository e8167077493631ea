"""The shapes of 157 parameters as a 50-layer residual network's convolutions and norms have them."""

from __future__ import annotations

__all__ = ["SHAPES"]

Shape = tuple[int, ...]


def _shapes() -> list[Shape]:
    found: list[Shape] = [(64, 3, 7, 7), (64,), (64,)]
    width = 64
    for planes, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            convolutions: list[Shape] = [
                (planes, width, 1, 1), (planes, planes, 3, 3), (4 * planes, planes, 1, 1),
            ]  # fmt: skip
            if block == 0:
                convolutions.append((4 * planes, width, 1, 1))
            for shape in convolutions:
                found += [shape, (shape[0],), (shape[0],)]
            width = 4 * planes
    return found


SHAPES = _shapes()[:157]
