"""The demo: a model learns Python on workers that come, go, are taken away and killed.

`make demo` runs it. It drives Shoal as a person would (`shoal run`, `shoal scale`), in a home of its
own, so nothing else on the machine is touched, and draws what it saw.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import psutil

import drawing
import torchrun
from drawing import bold, dim, green, red
from shoal.client import Client
from shoal.objects.job import Job

ROOT = Path(__file__).resolve().parent.parent
SHOAL = Path(sys.executable).with_name("shoal")
NAME = "language-model"
REPORT = "report"
WORKERS = 4
PATIENCE_SECONDS = 120.0


@dataclass(frozen=True)
class Told:
    """A worker applied a step: when, the loss of its part, and how many there were."""

    worker: str
    at: float
    step: int
    loss: float
    size: int


@dataclass
class Story:
    """What the looker-on saw and did. Times are seconds since 1970."""

    steps: int
    told: list[Told] = field(default_factory=list)
    done: list[tuple[str, float, int, str]] = field(default_factory=list)
    ended: bool = False

    @property
    def step(self) -> int:
        """The last step that anybody told of."""
        return max((each.step for each in self.told), default=0)

    @property
    def size(self) -> int:
        """How many workers took part in it."""
        return self.told[-1].size if self.told else 0

    def note(self, letter: str, text: str) -> None:
        """Something was done."""
        self.done.append((letter, time.time(), self.step, text))
        print(f"  {bold(letter)} step {self.step:>4}  {text}", flush=True)

    def until(self, what: str, condition) -> None:
        """Wait for what is to be seen."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if self.ended or time.monotonic() > deadline:
                subprocess.run([str(SHOAL), "explain", f"job/{NAME}"], check=False)
                raise SystemExit(red(f"the demo waited in vain: {what} (at step {self.step})"))
            time.sleep(0.02)


def main() -> None:
    """Run the demo and print its account."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--home", type=Path, default=ROOT / ".shoal" / "demo")
    parser.add_argument("--without-torchrun", action="store_true", help="leave the comparison out")
    options = parser.parse_args()
    os.environ["SHOAL_HOME"] = str(options.home)
    os.environ["PATH"] = f"{SHOAL.parent}{os.pathsep}{os.environ['PATH']}"  # as in an activated .venv
    stop(quiet=True)
    shutil.rmtree(options.home, ignore_errors=True)
    story = Story(options.steps)
    try:
        shoal("up", "--cpu", "5")
        train = ["python", "examples/language_model/train.py", "--steps", str(options.steps)]
        shoal("run", "--name", NAME, "--min", "1", "--max", "2", "--cpu", "1", "--restart", "3",
              "--priority", "experiment", "-d", "--", *train)  # fmt: skip
        with Client.connect() as client:
            reader = threading.Thread(target=follow, args=(client, story), daemon=True)
            reader.start()
            act(story)
            reader.join()
            job = client.wait_finished("default", NAME)
            account(client, story, job)
    finally:
        stop(quiet=False)
    if job.status.phase != "Succeeded":
        sys.exit(1)
    if not options.without_torchrun:
        compare(story)


def act(story: Story) -> None:
    """What happens to the job, each when the step before it has been seen."""
    story.until("two workers", lambda: story.size == 2)
    story.note("2", "training on 2 workers")
    story.until("the first steps", lambda: story.step >= story.steps * 0.12)
    shoal("scale", f"job/{NAME}", "--max", str(WORKERS))
    story.until("four workers", lambda: story.size == WORKERS)
    story.note("4", f"grown to {WORKERS}")
    story.until("steps with four", lambda: story.step >= story.steps * 0.3)
    shoal("run", "--name", REPORT, "--priority", "production", "--workers", "2", "--cpu", "1", "-d",
          "--", "sleep", "6")  # fmt: skip
    story.until("two workers are taken", lambda: story.size == 2)
    story.note("P", "a production job took two of them")
    story.until("they come back", lambda: story.size == WORKERS)
    story.note("4", "it is through, and they are back")
    before = story.step + 15
    story.until("steps with four again", lambda: story.step >= before)
    victim = find_worker(1)
    victim.send_signal(signal.SIGKILL)
    story.note("x", f"kill -9 {victim.pid}: worker 1")


def follow(client: Client, story: Story) -> None:
    """Read what the workers tell, until the job is over."""
    text: dict[tuple[str, int, int], bytes] = {}
    for record in client.logs("default", NAME, follow=True):
        key = (record.role, record.index, record.incarnation)
        *lines, text[key] = (text.get(key, b"") + record.data).split(b"\n")
        for line in lines:
            if line.startswith(b'{"at"'):
                said = json.loads(line)
                worker = f"{record.role} {record.index}"
                story.told.append(Told(worker, said["at"], said["step"], said["loss"], said["size"]))
    story.ended = True


def find_worker(index: int) -> psutil.Process:
    """The training process of one worker of this demo's home."""
    for process in psutil.process_iter():
        try:
            environment, words = process.environ(), process.cmdline()
        except psutil.Error:
            continue
        mine = environment.get("SHOAL_JOB") == NAME and environment.get("SHOAL_INDEX") == str(index)
        if mine and environment.get("SHOAL_ROLE") == "worker" and any("train.py" in w for w in words):
            return process
    raise SystemExit(f"worker {index} has no process")


def account(client: Client, story: Story, job: Job) -> None:
    """The picture, and the figures."""
    status = job.status
    if status.phase != "Succeeded":
        print(red(f"the job ended as {status.phase}: {status.message}"))
        return
    width = max(40, min(shutil.get_terminal_size((100, 24)).columns, 120) - 14)
    losses: dict[int, list[float]] = {}
    present = {f"worker {index}": set[int]() for index in range(WORKERS)}
    for each in story.told:
        losses.setdefault(each.step, []).append(each.loss)
        present.setdefault(each.worker, set()).add(each.step)
    means = {step: statistics.fmean(values) for step, values in losses.items()}
    print()
    for line in drawing.lanes(present, story.steps, width):
        print(line)
    for line in drawing.curve(means, story.steps, width):
        print(line)
    print(drawing.marks({step: letter for letter, _, step, _ in story.done}, story.steps, width))
    missing = sorted(set(range(1, story.steps + 1)) - set(means))
    output = Path(os.environ["SHOAL_HOME"]) / "output" / "default" / job.metadata.uid
    result = json.loads((output / "result.json").read_text())
    first, last = means[min(means)], result["held_out_loss"]
    rows = [
        (
            "steps",
            f"{len(means)} of {story.steps}, " + (f"missing {missing}" if missing else "none missing"),
        ),
        *((f"pause, {title}", milliseconds(pause)) for title, pause in pauses(story)),
        ("the production job", f"started {seconds_to_start(client):.2f} s after it was submitted"),
        ("restarts of the gang", f"{status.attempt - 1}"),
        ("loss", f"{first:.2f} at first; {last:.2f} nats per character on held-out files"),
    ]
    print("\n".join(drawing.table(rows)))
    print(f"\n  {bold('what it writes after')} def")
    for line in textwrap.dedent(result["sample"]).strip("\n").splitlines()[:8]:
        print(f"    {green(line[:90])}".rstrip())


def seconds_to_start(client: Client) -> float:
    """From the production job's submission, on a full cluster, to its first task's start."""
    report = client.get(Job, "default", REPORT)
    return report.status.started - report.metadata.created


def pauses(story: Story) -> list[tuple[str, float]]:
    """By how much the step at each change of size took longer than those around it, in seconds."""
    first: dict[int, Told] = {}
    for each in story.told:
        if each.step not in first or each.at < first[each.step].at:
            first[each.step] = each
    steps = sorted(first)
    gaps = {b: first[b].at - first[a].at for a, b in pairwise(steps)}
    found: list[tuple[str, float]] = []
    for before, step in pairwise(steps):
        was, now = first[before].size, first[step].size
        if was == now:
            continue
        usual = statistics.median(gaps[s] for s in range(step + 1, step + 8) if s in gaps)
        killed = [
            at for letter, at, _, _ in story.done if letter == "x" and 0 <= first[step].at - at < 3
        ]
        title = "worker killed" if killed and now < was else f"{was} to {now} workers"
        pause = first[step].at - killed[0] if title == "worker killed" else gaps[step]
        found.append((title, max(0.0, pause - usual)))
    return found


def milliseconds(pause: float) -> str:
    """A pause; what is no longer than steps differ anyway cannot be told."""
    return f"{pause * 1000:.0f} ms" if pause >= 0.005 else "none to be seen"


def compare(story: Story) -> None:
    """The same kill under torchrun."""
    print(
        f"\n  {dim('the same kill under torchrun (2 workers, a checkpoint every 30 steps) ...')}",
        flush=True,
    )
    restart = torchrun.kill_one(2, kill_after=45, checkpoint_every=30)
    if restart is None:
        print(f"  torchrun did not come back within {torchrun.LIMIT_SECONDS:.0f} s")
        return
    mine = dict(pauses(story)).get("worker killed")
    rows = [
        ("Shoal", f"{milliseconds(mine)}, 0 steps done again" if mine is not None else "not seen"),
        ("torchrun", f"{milliseconds(restart.pause_seconds)}, {restart.redone} steps done again"),
    ]
    print("\n".join(drawing.table(rows)))


def shoal(*words: str) -> None:
    """A command, as a person would type it."""
    print(bold("$ " + " ".join(["shoal", *words])), flush=True)
    subprocess.run([str(SHOAL), *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def stop(*, quiet: bool) -> None:
    """End the demo's own server and node, if they run."""
    home = Path(os.environ["SHOAL_HOME"])
    if home.exists():
        done = subprocess.run([str(SHOAL), "down", "-y"], capture_output=True, text=True, check=False)
        if done.returncode and not quiet:
            print(done.stderr, file=sys.stderr)


if __name__ == "__main__":
    main()
