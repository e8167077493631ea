"""What must hold between the fields of an object, beyond the type of each.

A rule reads a typed object and reports paths. Every finding names the other parts it was concluded
from, so that a rule stays silent where one of them is itself wrong: nobody wants to hear that 5 is
more than 1 when the 1 stands for a misspelt number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shoal.objects import job_rules, queue_rules
from shoal.objects.job import Job
from shoal.objects.meta import Metadata, Object
from shoal.objects.node import Node
from shoal.objects.paths import Finding, Path
from shoal.objects.queue import Queue
from shoal.objects.selectors import label_key_problem, label_value_problem

__all__ = ["check_rules"]

_LARGEST_ANNOTATIONS = 256 * 1024


def check_rules(obj: Object) -> list[Finding]:
    """Everything wrong with an object whose types are right."""
    findings = list(_metadata(obj.metadata))
    if isinstance(obj, Job):
        findings += job_rules.check(obj.spec)
    elif isinstance(obj, Queue):
        findings += queue_rules.check(obj.metadata.name, obj.spec)
    elif isinstance(obj, Node):
        findings += _node(obj)
    return findings


def _metadata(metadata: Metadata) -> Iterable[Finding]:
    yield from _labels(metadata.labels, ("metadata", "labels"))
    path: Path = ("metadata", "annotations")
    for key in metadata.annotations:
        if problem := label_key_problem(key):
            yield Finding((*path, key), problem.replace("a label key", "an annotation key"))
    size = sum(len(key) + len(value) for key, value in metadata.annotations.items())
    if size > _LARGEST_ANNOTATIONS:
        yield Finding(path, f"annotations hold at most {_LARGEST_ANNOTATIONS} characters; found {size}")


def _labels(labels: Mapping[str, str], path: Path) -> Iterable[Finding]:
    for key, value in labels.items():
        if problem := label_key_problem(key):
            yield Finding((*path, key), problem)
        if problem := label_value_problem(value):
            yield Finding((*path, key), problem)


def _node(node: Node) -> Iterable[Finding]:
    yield from _labels(node.spec.labels, ("spec", "labels"))
    seen: set[tuple[str, str]] = set()
    for at, taint in enumerate(node.spec.taints):
        path: Path = ("spec", "taints", at)
        if problem := label_key_problem(taint.key):
            yield Finding((*path, "key"), problem.replace("a label key", "a taint's key"))
        if problem := label_value_problem(taint.value):
            yield Finding((*path, "value"), problem.replace("a label value", "a taint's value"))
        if (taint.key, taint.effect) in seen:
            yield Finding(path, f"a taint {taint.key}:{taint.effect} is listed already")
        seen.add((taint.key, taint.effect))
