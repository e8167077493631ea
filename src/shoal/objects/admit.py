"""What may enter the store: a document becomes an object, or every reason why it does not.

Three gates, all pure. `admit` reads a document alone. `admit_job` holds a job against its queue.
`check_update` holds a change against what is stored. The server passes each write through them; the
command line passes files through the first, to name lines before anything is sent.

A rule of a kind reads a typed object and reports paths. Every finding names the other parts it was
concluded from, so that a rule stays silent where one of them is itself wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from shoal.objects import codec
from shoal.objects.errors import Forbidden, Invalid, Problem
from shoal.objects.job import Job, priority_number
from shoal.objects.kinds import KINDS, Kind, kind_of
from shoal.objects.meta import API_VERSION, Metadata, Object
from shoal.objects.nearest import did_you_mean
from shoal.objects.paths import Finding, Path, spell
from shoal.objects.queue import Queue
from shoal.objects.selectors import label_findings, label_key_problem
from shoal.objects.validate import check_structure, shown

LARGEST_OBJECT = 1 << 20
"""Bytes of an object's document; above etcd's own limit nothing could be kept on Kubernetes."""

LARGEST_COUNT = 100_000
"""Values of an object's document: what it costs to check them is bounded."""

_LISTED = 100

Locate = Callable[[Path], tuple[int, int]]
"""The line and column of a path in the text it came from; (0, 0) when there is none."""


def admit(
    document: Any, kind: Kind | None = None, *, namespace: str = "", locate: Locate | None = None
) -> Object:
    """The object that a document describes, with its defaults and without status.

    `kind` is what the caller expects (from a URL), else the document must say. `namespace` is the one
    the caller works in: given to a document that names none, and another one is refused.

    Raises:
        Invalid: something is wrong; `problems` holds everything that is.
    """
    obj, findings = check_document(document, kind, namespace=namespace)
    if obj is None or findings:
        raise invalid("the object", problems_of(findings, locate))
    return obj


def check_document(
    document: Any, kind: Kind | None = None, *, namespace: str = ""
) -> tuple[Object | None, list[Finding]]:
    """As `admit`, but gives the findings back; the object is None when there are any."""
    if not isinstance(document, dict):
        return None, [
            Finding((), f"an object has the fields kind, metadata and spec; found {shown(document)}")
        ]
    fields = dict(cast("dict[str, Any]", document))
    fields.pop("status", None)  # written by controllers alone, and theirs to check
    if _holds_more_than(fields, LARGEST_COUNT):
        message = f"an object has at most {LARGEST_COUNT} values (fields and entries of lists)"
        return None, [Finding((), message)]
    meant, findings = _kind_of(fields, kind)
    if meant is None:
        return None, findings
    findings += _place(fields, meant, namespace)
    kept, structural = check_structure(fields, meant.struct)
    findings += structural
    obj = codec.canonical(codec.convert(kept, meant.struct))
    findings += _not_implied(check_rules(obj), structural)
    if not findings and (size := len(codec.encode(obj))) > LARGEST_OBJECT:
        findings.append(Finding((), f"an object has at most {LARGEST_OBJECT} bytes; found {size}"))
    return (None if findings else obj), findings


def admit_to(
    queue: Queue | None,
    name: str,
    namespace: str,
    known: Iterable[str] = (),
    path: Path = ("spec", "queue"),
) -> Queue:
    """The queue of this name, if it takes jobs of the namespace. `path` is the field that names it.

    Raises:
        Invalid, Forbidden: as `admit_job`, but for priorities.
    """
    if queue is None or queue.metadata.deleted:
        state = "there is no queue" if queue is None else "this queue is being deleted:"
        message = f"{state} {name}{did_you_mean(name, known) if queue is None else ''}"
        raise Invalid(message, (Problem(spell(path), message),), hint="shoal get queues lists them")
    if queue.spec.namespaces and namespace not in queue.spec.namespaces:
        allowed = ", ".join(queue.spec.namespaces)
        near = did_you_mean(namespace, queue.spec.namespaces)
        raise Forbidden(
            f"queue {name} is not for namespace {namespace}", hint=f"it is for {allowed}{near}"
        )
    return queue


def admit_job(job: Job, queue: Queue | None, known: Iterable[str] = ()) -> Job:
    """The job, if its queue takes it. `queue` is the one that the job names, None when there is none;
    `known` are the names of all queues, of which the nearest is named then.

    Raises:
        Invalid: no such queue, or it is being deleted.
        Forbidden: the queue is not for this namespace, or not at this priority.
    """
    name, namespace = job.spec.queue, job.metadata.namespace
    queue = admit_to(queue, name, namespace, known)
    limits = queue.spec.highest_priority
    highest = limits.get(namespace, limits.get("*"))
    if highest is not None and priority_number(job.spec.priority) > priority_number(highest):
        raise Forbidden(
            f"jobs of namespace {namespace} have at most priority {highest} in queue {name}; "
            f"this one asks for {job.spec.priority}",
            hint=f"set spec.priority to {highest} or less, or use another queue",
        )
    return job


def check_update(old: Object, new: Object) -> None:
    """Whether `new` may take the place of `old`, which is as stored, with its status.

    Raises:
        Invalid: it may not; `problems` holds every field that may not change.
    """
    problems = [Problem(spell(finding.path), finding.message) for finding in _changes(old, new)]
    if problems:
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise Invalid(f"{problems[0]}{more}", tuple(problems))


def problems_of(findings: Iterable[Finding], locate: Locate | None = None) -> tuple[Problem, ...]:
    """Findings as errors carry them, in the order of the text they were found in."""
    problems = [
        Problem(spell(f.path), f.message, *(locate(f.path) if locate else (0, 0))) for f in findings
    ]
    return tuple(sorted(problems, key=lambda problem: (problem.line, problem.column)))


def invalid(what: str, problems: tuple[Problem, ...]) -> Invalid:
    """The error for everything wrong with `what` (a file, an object), the first hundred one by one."""
    if len(problems) == 1:
        return Invalid(f"{what} is not valid: {problems[0]}", problems)
    message = f"{what} has {len(problems)} problems, the first: {problems[0]}"
    if (more := len(problems) - _LISTED) > 0:
        problems = (*problems[:_LISTED], Problem("", f"{more} more problems are not listed"))
    return Invalid(message, problems)


def _changes(old: Object, new: Object) -> Iterable[Finding]:
    if type(old) is not type(new):
        return [Finding(("kind",), f"wants {old.kind}; found {new.kind}")]
    if old.metadata.deleted and old.spec != new.spec:
        return [Finding(("spec",), "the object is being deleted: its spec cannot be changed any more")]
    return kind_of(old).check_change(old, new)


def _holds_more_than(document: Any, most: int) -> bool:
    """Whether a document holds more values; looks at no more of them than that."""
    layer: list[Any] = [document]
    count = 0
    while layer:
        below: list[Any] = []
        for each in layer:
            if isinstance(each, dict):
                below += cast("dict[str, Any]", each).values()
            elif isinstance(each, list):
                below += cast("list[Any]", each)
            if count + len(below) > most:
                return True
        layer = below
        count += len(below)
    return False


def _kind_of(fields: dict[str, Any], expected: Kind | None) -> tuple[Kind | None, list[Finding]]:
    """The kind to read the document as, None where it is not ours to read, and what is wrong with
    what it says of itself. Both fields then hold what they should."""
    version, name = fields.get("apiVersion"), fields.get("kind")
    findings: list[Finding] = []
    if version is None and expected is None:
        findings.append(Finding(("apiVersion",), f"is required: {API_VERSION}"))
    elif version not in (None, API_VERSION):
        near = did_you_mean(str(version), [API_VERSION])
        findings.append(Finding(("apiVersion",), f"wants {API_VERSION}; found {shown(version)}{near}"))
        if not near:
            return None, findings  # another platform's object: its other fields say nothing here
    if name is None and expected is None:
        return None, [*findings, Finding(("kind",), f"is required: {', '.join(KINDS)}")]
    kind = expected if name is None else KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        near = did_you_mean(str(name), KINDS) or f"; known are {', '.join(KINDS)}"
        return None, [*findings, Finding(("kind",), f"{shown(name)} is no kind{near}")]
    if expected is not None and kind is not expected:
        return None, [*findings, Finding(("kind",), f"wants {expected.name}; found {kind.name}")]
    fields["apiVersion"], fields["kind"] = API_VERSION, kind.name
    return kind, findings


def _place(fields: dict[str, Any], kind: Kind, namespace: str) -> list[Finding]:
    """Put the object where the caller works; cluster-wide ones into no namespace."""
    metadata = fields.get("metadata")
    if not isinstance(metadata, dict):
        return []
    placed = dict(cast("dict[str, Any]", metadata))
    fields["metadata"] = placed
    given = placed.get("namespace")
    if not kind.namespaced:
        placed["namespace"] = ""
    elif given in (None, ""):
        placed["namespace"] = namespace or "default"
    elif namespace and isinstance(given, str) and given != namespace:
        message = f"the object is of namespace {given}, and the command of namespace {namespace}"
        return [Finding(("metadata", "namespace"), message)]
    return []


def _not_implied(found: Iterable[Finding], known: list[Finding]) -> list[Finding]:
    """Those that do not follow from something that is reported already."""
    wrong = {path for finding in known for path in (finding.path, *finding.involves)}
    above = {path[:length] for path in wrong for length in range(len(path) + 1)}

    def implied(path: Path) -> bool:
        return path in above or any(path[:length] in wrong for length in range(len(path)))

    return [each for each in found if not any(map(implied, (each.path, *each.involves)))]


_LARGEST_ANNOTATIONS = 256 * 1024


def check_rules(obj: Object) -> list[Finding]:
    """Everything wrong with an object that has the right types."""
    return [*_metadata(obj.metadata), *kind_of(obj).check(obj)]


def _metadata(metadata: Metadata) -> Iterable[Finding]:
    yield from label_findings(metadata.labels, ("metadata", "labels"))
    path: Path = ("metadata", "annotations")
    for key in metadata.annotations:
        if problem := label_key_problem(key):
            yield Finding((*path, key), problem.replace("a label key", "an annotation key"))
    size = sum(len(key) + len(value) for key, value in metadata.annotations.items())
    if size > _LARGEST_ANNOTATIONS:
        yield Finding(path, f"annotations hold at most {_LARGEST_ANNOTATIONS} characters; found {size}")
