"""Blocking calls off the event loop: a bounded number of threads for each kind of work.

Store calls never queue behind the reading of logs or behind a node that does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

__all__ = ["Threads"]

P = ParamSpec("P")
R = TypeVar("R")


class Threads:
    """One pool; `call` waits for its turn."""

    def __init__(self, name: str, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=name)

    async def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """What `function` returns or raises. When the caller is cancelled the call goes on unseen."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, partial(function, *args, **kwargs))

    def close(self) -> None:
        """Start nothing more; what runs is left to end."""
        self._pool.shutdown(wait=False, cancel_futures=True)
