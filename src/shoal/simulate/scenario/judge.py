"""Whether a decision came as it was expected, and where it did not, what came instead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import chain

import msgspec

from shoal.schedule.cycle.rows import Cluster, Job, Task
from shoal.schedule.cycle.steps import Deny, Move, Plan, Reserve, Step
from shoal.schedule.cycle.words import say
from shoal.simulate.scenario.spot import Spot
from shoal.simulate.scenario.wishes import STOP, Details, Expectation, Named, Wish

__all__ = ["kind_of", "tasks_of", "unmet"]

_STOPS = ("shrink", "preempt", "move")
_CLOSE = 1e-6


def kind_of(step: Step) -> str:
    """The name of a step as files have it: `start`."""
    return type(step).__name__.lower()


def tasks_of(step: Step) -> tuple[Task, ...]:
    """The tasks that start, or stop, or that something is kept for."""
    return () if isinstance(step, Deny) else getattr(step, "tasks", ())


def unmet(expectation: Expectation, plan: Plan, after: Cluster) -> list[str]:
    """Sentences, each with its place; none where all is as expected. `after` is the cluster once the
    plan was carried out."""
    view = _View(plan, after)
    found = list(chain.from_iterable(_of_wish(wish, view) for wish in expectation.wishes))
    if expectation.quiet:
        loud = [step for step in plan.steps if kind_of(step) not in ("reserve", "deny")]
        if loud:
            said = ", ".join(f"{kind_of(step)} {step.job}" for step in loud[:5])
            found.append(_told(expectation.spot, f"nothing was to start, stop or move, but: {said}"))
    if expectation.one_of:
        tries = [unmet(each, plan, after) for each in expectation.one_of]
        if all(tries):
            found.append(_told(expectation.spot, f"none of {len(tries)} ways came true"))
            found += chain.from_iterable(tries)
    return found


class _View:
    """A plan by kinds and jobs."""

    def __init__(self, plan: Plan, after: Cluster) -> None:
        self.jobs = {job.name: job for job in after.jobs}
        self.labels = {node.name: node.labels for node in after.nodes}
        self.steps = plan.steps

    def doing(self, what: str) -> dict[str, list[Step]]:
        """Those that take this step."""
        kinds = _STOPS if what == STOP else (what,)
        found: dict[str, list[Step]] = {}
        for step in self.steps:
            if kind_of(step) in kinds:
                found.setdefault(step.job, []).append(step)
        return found

    def named(self, named: Named) -> list[str]:
        """The jobs that it stands for: all there are that its pattern matches, itself if none is."""
        if not set(named.pattern) & set("*?["):
            return [named.pattern]
        return [name for name in self.jobs if fnmatchcase(name, named.pattern)] or [named.pattern]

    def instead(self, name: str) -> str:
        """What the plan has for a job."""
        steps = [step for step in self.steps if step.job == name]
        if not steps:
            return "the plan does nothing with it" if name in self.jobs else "there is no such job"
        return "; ".join(_short(step) for step in steps)


def _of_wish(wish: Wish, view: _View) -> Iterator[str]:
    if wish.what == "runs":
        for named in wish.named:
            for name in view.named(named):
                yield from _running(named, name, view)
        return
    if wish.what == "waits":
        for named in wish.named:
            for name in view.named(named):
                job = view.jobs.get(name)
                if job is None or job.present:
                    held = "there is no such job" if job is None else f"it is on {_places(job.present)}"
                    yield _told(named.spot, f"{name} was to wait, but {held}")
        return
    doing = view.doing(wish.what)
    expected: set[str] = set()
    for named in wish.named:
        for name in view.named(named):
            expected.add(name)
            if name not in doing:
                yield _told(named.spot, f"{wish.what} of {name} expected, but: {view.instead(name)}")
            else:
                for wrong in _differences(named.details, doing[name], view):
                    yield _told(named.spot, f"{wish.what} of {name}: {wrong}")
    others = [name for name in doing if name not in expected]
    if others:
        said = ", ".join(f"{name} ({view.instead(name)})" for name in others[:5])
        more = f" and {len(others) - 5} more" if len(others) > 5 else ""
        yield _told(wish.spot, f"{wish.what} of nobody else expected, but of {said}{more}")


def _running(named: Named, name: str, view: _View) -> Iterator[str]:
    job: Job | None = view.jobs.get(name)
    present = () if job is None else job.present
    if not present:
        yield _told(named.spot, f"{name} was to run, but {view.instead(name)}")
        return
    for wrong in _about_tasks(named.details, present, view):
        yield _told(named.spot, f"{name} runs, but {wrong}")


def _differences(details: Details, steps: Sequence[Step], view: _View) -> Iterator[str]:
    tasks = list(chain.from_iterable(tasks_of(step) for step in steps))
    yield from _about_tasks(details, tasks, view)
    if details.to is not None:
        to = [task for step in steps if isinstance(step, Move) for task in step.to]
        if sorted(task.node for task in to) != list(details.to):
            yield f"to {', '.join(details.to)} expected, not to {_places(to)}"
    at = next((step.at for step in steps if isinstance(step, Reserve)), None)
    if details.at is not None and (at is None or abs(at - details.at) > _CLOSE):
        yield f"at {details.at:g} s expected, not {_time(at)}"
    if details.at_most is not None and (at is None or at > details.at_most + _CLOSE):
        yield f"at {details.at_most:g} s at the latest expected, not {_time(at)}"
    codes = [step.code for step in steps]
    if details.codes and not set(codes) & set(details.codes):
        yield f"code {' or '.join(details.codes)} expected, not {', '.join(codes)}"
    for word in details.says:
        if not any(word in _words(step) for step in steps):
            yield f"the reason was to say {word!r}, not: {_words(steps[0])}"
    whom = {getattr(step, "beneficiary", "") for step in steps}
    if details.beneficiary and whom != {details.beneficiary}:
        yield f"for {details.beneficiary} expected, not for {', '.join(sorted(whom)) or 'anybody'}"


def _about_tasks(details: Details, tasks: Sequence[Task], view: _View) -> Iterator[str]:
    if details.tasks is not None and len(tasks) != details.tasks:
        yield f"{details.tasks} tasks expected, not {len(tasks)}: {_places(tasks)}"
    if details.indices is not None:
        indices = sorted(task.index for task in tasks)
        if indices != list(details.indices):
            yield f"tasks {list(details.indices)} expected, not {indices}"
    if details.nodes is not None and sorted(task.node for task in tasks) != list(details.nodes):
        yield f"on {', '.join(details.nodes)} expected, not on {_places(tasks)}"
    for label, value in details.within.items():
        away = sorted({task.node for task in tasks if view.labels[task.node].get(label) != value})
        if away:
            yield f"within {label} {value} expected, not on {', '.join(away)}"


def _short(step: Step) -> str:
    tasks = tasks_of(step)
    where = f" {_places(tasks)}" if tasks else ""
    when = f" at {_time(step.at)}" if isinstance(step, Reserve) and step.at is not None else ""
    return f"{kind_of(step)}{where}{when} ({step.code})"


def _words(step: Step) -> str:
    """The reason, and the evidence as it is."""
    said = say(step.code, step.evidence)
    evidence = msgspec.json.encode(step.evidence).decode()
    return f"{said.sentence} ({step.code}, {evidence})"


def _places(tasks: Iterable[Task]) -> str:
    counts: dict[str, int] = {}
    for task in tasks:
        counts[task.node] = counts.get(task.node, 0) + 1
    return ", ".join(f"{count}@{node}" for node, count in counts.items()) or "nothing"


def _time(at: float | None) -> str:
    return "no date" if at is None else f"{at:g} s"


def _told(spot: Spot, sentence: str) -> str:
    return spot.wrong(sentence).message
