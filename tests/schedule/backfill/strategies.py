"""Small worlds for hypothesis, in whole seconds."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.schedule.backfill.world import FOREVER, Ask, Run

LENGTHS = st.one_of(st.integers(1, 7), st.integers(1, 7), st.just(FOREVER))
SPAN = 120
"""Longer than all jobs one after the other."""


@st.composite
def worlds(draw, *, endless: bool = True, pools: int = 2, jobs: int = 8):
    """Pools of (2,) resources, shared amounts, what runs, and who waits."""
    lengths = LENGTHS if endless else st.integers(1, 7)
    sizes = [
        (draw(st.integers(1, 6)), draw(st.integers(0, 4))) for _ in range(draw(st.integers(1, pools)))
    ]
    shared = draw(st.sampled_from([(), (), (2,)]))
    left = [list(size) for size in sizes]
    runs: list[Run] = []
    for _ in range(draw(st.integers(0, 4))):
        pool = draw(st.integers(0, len(sizes) - 1))
        amounts = tuple(draw(st.integers(0, most)) for most in left[pool])
        left[pool] = [most - amount for most, amount in zip(left[pool], amounts, strict=True)]
        runs.append(Run(amounts, draw(lengths), pool))
    asks = [
        Ask(
            (draw(st.integers(0, 6)), draw(st.sampled_from([0, 0, 1, 3]))),
            draw(lengths),
            shared=tuple(draw(st.integers(0, 2)) for _ in shared),
            pools=draw(st.sampled_from([None, None, (0,), (len(sizes) - 1,)])),
        )
        for _ in range(draw(st.integers(1, jobs)))
    ]
    # equal neighbours share a search
    asks = [ask for ask in asks for _ in range(draw(st.sampled_from([1, 1, 2, 4])))][: jobs + 4]
    return sizes, shared, runs, asks
