"""The memory that a worker and its sidecar share."""

from __future__ import annotations

import os
import threading

import pytest

from shoal.elastic.detect.progress import Progress, Shown, new_memory


def test_what_one_writes_the_other_reads() -> None:
    descriptor = new_memory()
    mine, theirs = Progress(descriptor), Progress(descriptor)
    os.close(descriptor)
    assert theirs.shown() == Shown(0, False, 0)
    mine.mark()
    mine.train(True)
    mine.answer()
    assert theirs.shown() == Shown(2, True, 1)
    mine.train(False)
    assert not theirs.shown().training
    mine.close()
    theirs.close()


def test_marks_from_many_threads_are_seen() -> None:
    """Marks may be lost to each other, but never all of them."""
    descriptor = new_memory()
    progress = Progress(descriptor)
    before = progress.shown().marks
    threads = [threading.Thread(target=lambda: [progress.mark() for _ in range(1000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10.0)
    assert progress.shown().marks >= before + 1000
    progress.close()
    os.close(descriptor)


def test_something_else_is_refused() -> None:
    reading, writing = os.pipe()
    with pytest.raises((OSError, ValueError)):
        Progress(reading)
    os.close(reading)
    os.close(writing)
