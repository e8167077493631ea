"""The rules of a Queue by itself: its amounts, its weight, its budgets, who may use it.

What must hold between queues is in `queue_tree`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from shoal.objects import job_rules
from shoal.objects.paths import Finding, Path
from shoal.objects.quantities import Quantity
from shoal.objects.queue import Amounts, QueueSpec, Quota

__all__ = ["RESOURCES", "check", "spelt"]

RESOURCES = ("cpu", "memory", "gpu")


def check(name: str, spec: QueueSpec) -> Iterable[Finding]:
    """Everything wrong with the spec of the Queue of that name, whose types are right."""
    if spec.parent and spec.parent == name:
        yield Finding(("spec", "parent"), f"{name} cannot be above itself", (("metadata", "name"),))
    yield from _amounts(spec)
    if not (math.isfinite(spec.weight) and spec.weight > 0):
        message = f"a weight is a number above 0; found {spec.weight:g}"
        yield Finding(("spec", "weight"), message)
    if not -(2**31) <= spec.priority < 2**31:
        message = f"a priority lies between {-(2**31)} and {2**31 - 1}"
        yield Finding(("spec", "priority"), message)
    yield from _budgets(spec)
    yield from _namespaces(spec)


def spelt(amount: Quantity | float) -> str:
    """An amount as people write it."""
    return amount.text() if isinstance(amount, Quantity) else f"{amount:g}"


def _amounts(spec: QueueSpec) -> Iterable[Finding]:
    """Guaranteed is a part of nominal, nominal of the quota, and lending of nominal."""
    kinds: Sequence[tuple[str, Amounts | Quota, str, Amounts | Quota]] = (
        ("guaranteed", spec.guaranteed, "nominal", spec.nominal),
        ("lending", spec.lending, "nominal", spec.nominal),
        ("nominal", spec.nominal, "quota", spec.quota),
    )
    for less, low, more, high in kinds:
        for resource in RESOURCES:
            path: Path = ("spec", less, resource)
            amount, bound = getattr(low, resource), getattr(high, resource)
            if amount is not None and not math.isfinite(amount):
                yield Finding(path, "an amount is a finite number")
            elif amount is None or (bound is None and (more == "quota" or not amount)):
                continue
            elif bound is None:
                message = f"{spelt(amount)} is more than {more}, which names no {resource}"
                yield Finding(path, message, (("spec", more, resource),))
            elif amount > bound:
                message = f"{spelt(amount)} is more than {more}, which is {spelt(bound)}"
                yield Finding(path, message, (("spec", more, resource),))


def _budgets(spec: QueueSpec) -> Iterable[Finding]:
    names: set[str] = set()
    for at, budget in enumerate(spec.budgets):
        path: Path = ("spec", "budgets", at)
        if budget.name in names:
            yield Finding((*path, "name"), f"two budgets are called {budget.name}")
        names.add(budget.name)
        if not (math.isfinite(budget.hours) and budget.hours > 0):
            message = f"a budget is a number of hours above 0; found {budget.hours:g}"
            yield Finding((*path, "hours"), message)


def _namespaces(spec: QueueSpec) -> Iterable[Finding]:
    for at, namespace in enumerate(spec.namespaces):
        if namespace in spec.namespaces[:at]:
            yield Finding(("spec", "namespaces", at), f"{namespace} is listed already")
    for namespace, priority in spec.highest_priority.items():
        path: Path = ("spec", "highestPriority", namespace)
        if problem := job_rules.priority_problem(priority):
            yield Finding(path, problem)
        if namespace == "*":
            continue
        if not job_rules.is_name(namespace):
            yield Finding(path, f"{namespace!r} is neither a namespace nor *")
        elif spec.namespaces and namespace not in spec.namespaces:
            message = f"namespace {namespace} may not use this queue: it is not in spec.namespaces"
            yield Finding(path, message, (("spec", "namespaces"),))
