"""The demo: a model learns Python on three workers, one is killed, the gang goes on and finishes.

`make demo` runs it. It drives Shoal as a person would (`shoal run`, then looking on through the
client), in a home of its own, so nothing else on the machine is touched.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from shoal.client import Client
from shoal.objects.job import Job
from shoal.store.base import SYSTEM

ROOT = Path(__file__).resolve().parent.parent
SHOAL = Path(sys.executable).with_name("shoal")
NAME = "language-model"
WORKERS = 3
STEP = re.compile(r"step (\d+)/(\d+) loss ([0-9.]+)")
NOISE = re.compile(r"Warning|^ |^Traceback|^\[rank\d+\]:(?!.*Error)")
"""Of a traceback only its last line is shown: the whole of it is in the log."""
COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ


def main() -> None:
    """Run the demo and print its account."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--home", type=Path, default=ROOT / ".shoal" / "demo")
    options = parser.parse_args()
    os.environ["SHOAL_HOME"] = str(options.home)
    os.environ["PATH"] = f"{SHOAL.parent}{os.pathsep}{os.environ['PATH']}"  # as in an activated .venv
    command = [
        "shoal", "run", "--name", NAME, "--workers", str(WORKERS), "--restart", "3", "-d", "--",
        "python", "examples/language_model/train.py", "--steps", str(options.steps),
    ]  # fmt: skip
    stop(quiet=True)
    shutil.rmtree(options.home, ignore_errors=True)
    print(bold("$ " + " ".join(command)))
    try:
        subprocess.run([str(SHOAL), *command[1:]], cwd=ROOT, check=True)
        with Client.connect() as client:
            story = watch(client, options.steps)
            account(client, story)
    finally:
        stop(quiet=False)
    if story.outcome != "Succeeded":
        sys.exit(1)


@dataclass
class Story:
    """What the looker-on saw. Times are monotonic seconds."""

    lines: list[str] = field(default_factory=list)
    first_loss: float = 0.0
    killed_at: float = 0.0
    killed_step: int = 0
    killed_pid: int = 0
    again_at: float = 0.0
    again_step: int = 0
    outcome: str = ""
    total: int = 0
    began: float = field(default_factory=time.monotonic)


def watch(client: Client, steps: int) -> Story:
    """Follow the logs; kill worker 1 once a third of the steps are done."""
    story = Story()
    text: dict[tuple[int, int], bytes] = {}
    for record in client.logs("default", NAME, follow=True):
        key = (record.index, record.incarnation)
        *lines, text[key] = (text.get(key, b"") + record.data).split(b"\n")
        for line in lines:
            tell(story, record.index, record.incarnation, line.decode(errors="replace"))
        if not story.killed_at and story.lines and last_step(story) >= steps // 3:
            kill(story)
    job = client.wait_finished("default", NAME)
    story.outcome = job.status.phase
    return story


def tell(story: Story, index: int, incarnation: int, line: str) -> None:
    """Show one line of a worker's log; steps as a bar as long as the loss is high."""
    match = STEP.search(line)
    if match is None:
        if story.lines and last_step(story) == story.total:
            return  # the sample is part of the account
        if line.strip() and not NOISE.search(line):
            print(dim(f"  [worker {index}] {line[:84]}"), flush=True)
        return
    step, total, loss = int(match[1]), int(match[2]), float(match[3])
    story.total = total
    story.first_loss = story.first_loss or loss
    story.lines.append(line)
    if story.killed_at and not story.again_at and incarnation > 1:
        story.again_at, story.again_step = time.monotonic(), step
        pause = story.again_at - story.killed_at
        print(bold(f"  {green('+')} training goes on at step {step}, {pause:.1f} s after the kill"))
    print(f"  step {step:>4}/{total}  loss {loss:.3f}  {cyan('█' * round(loss * 12))}", flush=True)


def kill(story: Story) -> None:
    """SIGKILL to worker 1's process, as an accident would."""
    victim = find_worker(1)
    story.killed_step, story.killed_pid = last_step(story), victim.pid
    print(
        bold(f"  {red('x')} kill -9 {victim.pid}: worker 1, after step {story.killed_step}"), flush=True
    )
    story.killed_at = time.monotonic()
    victim.send_signal(signal.SIGKILL)


def find_worker(index: int) -> psutil.Process:
    """The training process of one worker of this demo's home."""
    for process in psutil.process_iter():
        try:
            environment, words = process.environ(), process.cmdline()
        except psutil.Error:
            continue
        mine = environment.get("SHOAL_JOB") == NAME and environment.get("SHOAL_INDEX") == str(index)
        if mine and any(word.endswith("train.py") for word in words):
            return process
    raise SystemExit(f"worker {index} has no process")


def account(client: Client, story: Story) -> None:
    """The short account at the end."""
    job = client.get(Job, "default", NAME, actor=SYSTEM)
    home = Path(os.environ["SHOAL_HOME"])
    output = home / "output" / "default" / job.metadata.uid
    print()
    if story.outcome != "Succeeded":
        print(red(f"the job ended as {story.outcome}: {job.status.message}"))
        return
    result = json.loads((output / "result.json").read_text())
    redone = max(0, story.killed_step - story.again_step + 1)
    status, pause = job.status, story.again_at - story.killed_at
    logs = home / "logs" / "default" / job.metadata.uid
    held_out = result["held_out_loss"]
    rows = [
        (
            "killed",
            f"worker 1 of {WORKERS} (pid {story.killed_pid}) with SIGKILL at step {story.killed_step}",
        ),
        ("back at work", f"{pause:.1f} s later, from the checkpoint: about {redone} steps done again"),
        (
            "restarts",
            f"attempt {status.attempt}; {status.failures} of {job.spec.restart.limit} failures used",
        ),
        (
            "loss",
            f"{story.first_loss:.2f} at first; {held_out:.2f} nats per character on held-out files",
        ),
        ("took", f"{time.monotonic() - story.began:.0f} s"),
        ("logs", os.path.relpath(logs)),
        ("model", os.path.relpath(output / "checkpoint.pt")),
    ]
    for title, value in rows:
        print(f"  {bold(title):<{22 if COLOUR else 14}} {value}")
    print(f"\n  {bold('what it writes after')} def")
    for line in textwrap.dedent(result["sample"]).strip("\n").splitlines()[:12]:
        print(f"    {green(line[:90])}".rstrip())


def last_step(story: Story) -> int:
    """The step of the last line seen."""
    match = STEP.search(story.lines[-1]) if story.lines else None
    return int(match[1]) if match else 0


def stop(*, quiet: bool) -> None:
    """End the demo's own server and node, if they run."""
    home = Path(os.environ["SHOAL_HOME"])
    if home.exists():
        done = subprocess.run([str(SHOAL), "down", "-y"], capture_output=True, text=True, check=False)
        if done.returncode and not quiet:
            print(done.stderr, file=sys.stderr)


def _sgr(code: str, text: str) -> str:
    return f"\033[{code}m{text}\033[0m" if COLOUR else text


def bold(text: str) -> str:
    """Bold on a terminal."""
    return _sgr("1", text)


def dim(text: str) -> str:
    """Grey on a terminal."""
    return _sgr("2", text)


def red(text: str) -> str:
    """Red on a terminal."""
    return _sgr("31", text)


def green(text: str) -> str:
    """Green on a terminal."""
    return _sgr("32", text)


def cyan(text: str) -> str:
    """Cyan on a terminal."""
    return _sgr("36", text)


if __name__ == "__main__":
    main()
