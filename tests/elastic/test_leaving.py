from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SCRIPT = """
import atexit, os, sys, tempfile, threading

class Slow:
    def __del__(self, write=os.write):
        write(2, b"taken to pieces")

sys.kept = Slow()
atexit.register(print, "registered first, called last")
from shoal.elastic.leaving import leave

atexit.register(print, "registered second")
folder = tempfile.TemporaryDirectory()
print(folder.name, file=sys.stderr)
thread = threading.Thread(target=lambda: print("a thread is awaited"))
thread.start()
thread.join()
sys.stdout.write("no end of line")
try:
    leave()
finally:
    print(" but flushed")
"""


@pytest.mark.process
@pytest.mark.parametrize("task", [True, False])
def test_all_that_is_to_be_done_at_the_end_is_done_once(task: bool):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
    if task:
        environment["SHOAL_JOB"] = "train"
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 0
    lines = ran.stdout.splitlines()
    assert lines[:2] == ["a thread is awaited", "no end of line but flushed"]
    assert lines[2:] == ["registered second", "registered first, called last"]
    folder, *rest = ran.stderr.splitlines()
    assert not Path(folder).exists(), "what others have registered is done too"
    assert rest == ([] if task else ["taken to pieces"])
