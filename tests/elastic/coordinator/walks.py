"""Random walks through a `World`: the same actions as the model check, chosen by a seed."""

from __future__ import annotations

import random
from collections.abc import Callable

from .world import NAMES, World

_ACTIONS: tuple[tuple[int, str], ...] = (
    (30, "deliver"),
    (22, "work"),
    (14, "flush"),
    (8, "connect"),
    (6, "advance"),
    (3, "join"),
    (2, "crash"),
    (1, "notice"),
    (2, "break"),
    (1, "partition"),
    (1, "duplicate"),
    (3, "publish"),
    (1, "start"),
    (1, "freeze"),
    (1, "poll"),
    (1, "crash_coordinator"),
)


_GOSSIP = ((4, "accuse"),)


def act(world: World, action: str, index: int) -> None:
    """One action; `index` chooses among what it can be done to."""
    actions: dict[str, Callable[[], None]] = {
        "deliver": lambda: world.deliver(index),
        "work": lambda: world.work(index),
        "flush": lambda: world.flush(index, 1 + index % 3),
        "connect": lambda: world.connect(index),
        "advance": lambda: world.advance((0.1, 0.2, 0.7, 1.3)[index % 4]),
        "join": lambda: world.join(index),
        "crash": lambda: world.crash(index, sidecar_tells=index % 2 == 0),
        "notice": lambda: world.notice(index),
        "break": lambda: world.break_connection(index),
        "partition": lambda: world.partition(index),
        "accuse": lambda: world.accuse(index, heard=index % 5 == 0),
        "duplicate": lambda: world.duplicate(index),
        "publish": lambda: world.publish(index),
        "poll": world.poll,
        "start": world.start_coordinator,
        "freeze": lambda: world.freeze_coordinator(index),
        "crash_coordinator": lambda: world.crash_coordinator(index),
    }
    actions[action]()


def walk(world: World, seed: int, steps: int) -> None:
    """Walk, then let the network be quiet.

    Raises:
        Violation: what never may happen has happened.
    """
    chance = random.Random(seed)
    actions = (*_ACTIONS, *_GOSSIP) if world.star_limit < NAMES else _ACTIONS
    names = [name for weight, name in actions for _ in range(weight)]
    for _ in range(3):
        act(world, "join", chance.randrange(1 << 16))
    for _ in range(steps):
        if world.ended is not None:
            return
        act(world, chance.choice(names), chance.randrange(1 << 16))
    world.settle()
