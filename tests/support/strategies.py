"""Hypothesis strategies for valid objects, canonical as `shoal.objects.admit` makes them.

Everything they draw passes admission; what a test wants wrong it breaks itself. So roles have no image,
template or volumes, which need a cluster of containers. Needs `hypothesis`, which is not among Shoal's
dependencies.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar, get_type_hints

import msgspec
import msgspec.inspect
from hypothesis import strategies as st

from shoal.objects import codec
from shoal.objects.job import (
    PRIORITIES,
    ArraySpec,
    Gang,
    Job,
    JobSpec,
    Limits,
    Port,
    Resources,
    Restart,
    RestartRule,
    Role,
    RoleTopology,
    SecretUse,
    Speed,
    Success,
    Toleration,
    Topology,
)
from shoal.objects.job_rules import FIXED_RUNTIMES
from shoal.objects.meta import Metadata, Object
from shoal.objects.node import Node, NodeSpec, Taint
from shoal.objects.quantities import Bytes, CpuMillis, Seconds
from shoal.objects.queue import Amounts, Queue, QueueBudget, QueueSpec, Quota
from shoal.objects.ranges import IndexSet
from shoal.objects.task import Probe

__all__ = [
    "durations",
    "hostile_documents",
    "jobs",
    "labels",
    "metadata",
    "names",
    "nodes",
    "queues",
    "resources",
    "roles",
]

T = TypeVar("T", CpuMillis, Bytes, int)

_ROLES_OF_RUNTIME = {
    "mpi": ("launcher", "worker"),
    "tensorflow": ("chief", "worker", "ps", "evaluator"),
    "torchrun": ("master", "worker"),
    "xgboost": ("master", "worker"),
    "paddle": ("master", "worker"),
}
_SINGLE = frozenset({"launcher", "chief", "master"})
_LEVELS = st.sampled_from(["", "node", "rack", "example.com/block"])
_EFFECTS = st.sampled_from(["NoSchedule", "NoExecute"])


def names() -> st.SearchStrategy[str]:
    """Names of objects, roles and ports."""
    return st.from_regex(r"[a-z0-9]([-a-z0-9]{0,6}[a-z0-9])?", fullmatch=True)


def text() -> st.SearchStrategy[str]:
    """What an argument or a variable may hold: anything but NUL."""
    return st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)


def labels() -> st.SearchStrategy[dict[str, str]]:
    """Labels, with and without a prefix."""
    key = st.from_regex(
        r"([a-z]{1,4}\.dev/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,6}[A-Za-z0-9])?", fullmatch=True
    )
    value = st.from_regex(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,6}[A-Za-z0-9])?)?", fullmatch=True)
    return st.dictionaries(key, value, max_size=3)


def metadata(*, namespaced: bool = True) -> st.SearchStrategy[Metadata]:
    """What people write of an object's metadata."""
    return st.builds(
        Metadata,
        name=names(),
        namespace=names() if namespaced else st.just(""),
        labels=labels(),
        annotations=labels(),
    )


def durations(least_millis: int = 0) -> st.SearchStrategy[Seconds]:
    """Durations of whole milliseconds, up to a year."""
    return st.integers(least_millis, 365 * 86_400_000).map(lambda millis: Seconds(millis / 1000))


def resources() -> st.SearchStrategy[Resources]:
    """What a task asks for, from nothing to more than any machine has."""
    cpu = st.integers(0, 200_000).map(CpuMillis)
    memory = st.one_of(st.none(), st.integers(2**20, 2**45).map(Bytes))

    def build(
        cpu: CpuMillis, more: int | None, memory: Bytes | None, gpu: int, share: float | None
    ) -> Resources:
        limit = None if more is None else CpuMillis(cpu + more)
        share = None if gpu else share
        return Resources(cpu=cpu, cpu_limit=limit, memory=memory, gpu=gpu, gpu_share=share)

    share = st.one_of(st.none(), st.integers(1, 999).map(lambda thousandths: thousandths / 1000))
    return st.builds(
        build, cpu, st.one_of(st.none(), st.integers(1, 10_000)), memory, st.integers(0, 16), share
    )


@st.composite
def roles(draw: st.DrawFn, name: str = "worker", *, most: int = 50, elastic: bool = True) -> Role:
    """A role of at most `most` tasks."""
    replicas = draw(st.integers(1, most))
    env_name = st.from_regex(r"[A-RT-Z_][A-Z0-9_]{0,8}", fullmatch=True)
    env = draw(st.dictionaries(env_name, text(), max_size=3))
    ports = tuple(
        Port(name=port, port=0 if number == 0 else number + at)
        for at, (port, number) in enumerate(
            draw(st.dictionaries(names(), st.sampled_from([0, 1000]), max_size=2)).items()
        )
    )
    return Role(
        name=name,
        replicas=replicas,
        min_replicas=draw(st.one_of(st.none(), st.integers(1, replicas))) if elastic else None,
        command=(draw(text().filter(bool)), *draw(st.lists(text(), max_size=3))),
        args=tuple(draw(st.lists(text(), max_size=3))),
        env=env,
        secrets=draw(_secret_uses(env)),
        readiness=draw(st.one_of(st.none(), _probes(ports))),
        working_directory=draw(st.sampled_from(["", "/", "/data/my work"])),
        ports=ports,
        resources=draw(resources()),
        node_selector=draw(labels()),
        tolerations=tuple(draw(st.lists(_tolerations(), max_size=2))),
        topology=draw(
            st.one_of(st.none(), st.builds(RoleTopology, required=_LEVELS, preferred=_LEVELS))
        ),
        restart_rules=draw(_restart_rules()),
    )


@st.composite
def _secret_uses(draw: st.DrawFn, env: dict[str, str]) -> tuple[SecretUse, ...]:
    """Secrets in variables that the role does not set itself, and in files."""
    key = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,6}", fullmatch=True)
    variable = st.from_regex(r"SECRET_[A-Z0-9_]{0,4}", fullmatch=True)
    given = draw(
        st.lists(st.tuples(st.booleans(), variable, key), max_size=2, unique_by=lambda g: g[1:])
    )
    uses: list[SecretUse] = []
    for as_variable, name, file in given:
        used = {each.env for each in uses} | {each.file for each in uses} | set(env)
        if (name if as_variable else file) in used:
            continue
        where = {"env": name} if as_variable else {"file": file}
        uses.append(SecretUse(name=draw(names()), key=draw(key), **where))
    return tuple(uses)


@st.composite
def _probes(draw: st.DrawFn, ports: tuple[Port, ...]) -> Probe:
    """A readiness probe: a command, or one of the role's ports."""
    seconds = st.floats(0.001, 1e6)
    ways = st.sampled_from(["command", *(["tcp", "http"] if ports else [])])
    way = draw(ways)
    port = draw(st.sampled_from(ports)).name if ports else ""
    return Probe(
        command=("true", draw(text())) if way == "command" else (),
        tcp=port if way == "tcp" else "",
        http=f"{port}/healthz" if way == "http" else "",
        period_seconds=draw(seconds),
        timeout_seconds=draw(seconds),
        failures=draw(st.integers(1, 10)),
    )


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Jobs of every runtime, gangs and arrays."""
    array = draw(st.booleans())
    runtime: Any = (
        "plain"
        if array
        else draw(st.sampled_from([*sorted(_ROLES_OF_RUNTIME), "plain", "elastic", "jax"]))
    )
    made = (draw(roles(most=1, elastic=False)),) if array else draw(_groups(runtime))
    total = sum(role.replicas for role in made)
    fixed = runtime in FIXED_RUNTIMES
    apart = array or runtime == "elastic"
    least = max(1, sum(role.min_replicas or (role.replicas if fixed else 0) for role in made))
    numbers = [port.port for role in made for port in role.ports if port.port]
    one_network = len(set(numbers)) == len(numbers)
    spec = JobSpec(
        roles=made,
        runtime=runtime,
        queue=draw(names()),
        priority=draw(st.one_of(st.integers(-(2**31), 2**31 - 1), st.sampled_from(sorted(PRIORITIES)))),
        user=draw(text()),
        preemptible=draw(st.booleans()),
        topology=draw(st.one_of(st.none(), _topologies())),
        speed=draw(st.one_of(st.none(), _speeds())),
        gang=Gang(min=None if array else draw(st.one_of(st.none(), st.integers(least, total)))),
        array=draw(_arrays()) if array else None,
        limits=draw(
            st.builds(
                Limits,
                wall_time=st.one_of(st.none(), durations(1)),
                node_hours=st.one_of(st.none(), st.floats(1e-6, 1e9)),
                idle_timeout=st.one_of(st.none(), durations(1)),
            )
        ),
        restart=Restart(
            policy=draw(st.sampled_from(["OnFailure", "Never", "Always"])),
            limit=draw(st.integers(0, 10)),
            infrastructure_limit=draw(st.integers(0, 100)),
            scope=draw(st.sampled_from([None, "Task"] if apart else [None, "Task", "Gang"])),
            backoff=draw(durations()),
            rules=draw(_restart_rules()),
        ),
        success=Success(
            role=draw(st.sampled_from(["", *(role.name for role in made)])),
            policy=draw(st.sampled_from(["All", "First", "Any"])),
        ),
        grace_period=draw(durations()),
        clean_up=draw(st.sampled_from(["Running", "All", "None"])),
        ttl_after_finished=draw(st.one_of(st.none(), durations())),
        suspend=draw(st.booleans()),
        cancelled=draw(st.booleans()),
        isolation=draw(st.sampled_from(["default", "strict"] if one_network else ["default"])),
    )
    return codec.canonical(Job(metadata=draw(metadata()), spec=spec))


@st.composite
def queues(draw: st.DrawFn) -> Queue:
    """Queues with and without quota, open and closed."""
    namespaces = tuple(draw(st.lists(names(), max_size=3, unique=True)))
    allowed = st.sampled_from(["*", *namespaces]) if namespaces else st.one_of(st.just("*"), names())
    priority = st.one_of(st.integers(-(2**31), 2**31 - 1), st.sampled_from(sorted(PRIORITIES)))
    nominal = draw(_amounts())
    quota = draw(_quotas())
    spec = QueueSpec(
        parent=draw(st.one_of(st.just(""), names().map(lambda name: f"above-{name}"))),
        quota=msgspec.structs.replace(
            quota,
            cpu=_at_least(quota.cpu, nominal.cpu),
            memory=_at_least(quota.memory, nominal.memory),
            gpu=_at_least(quota.gpu, None if nominal.gpu is None else math.ceil(nominal.gpu)),
        ),
        nominal=nominal,
        guaranteed=draw(_parts_of(nominal)),
        borrowing=draw(_amounts()),
        lending=draw(_parts_of(nominal)),
        weight=draw(st.floats(1e-3, 1e3)),
        priority=draw(st.integers(-(2**31), 2**31 - 1)),
        fenced=draw(st.booleans()),
        user_limit=draw(_quotas()),
        min_runtime=draw(st.one_of(st.none(), durations())),
        budgets=tuple(draw(st.lists(_budgets(), max_size=2, unique_by=lambda budget: budget.name))),
        namespaces=namespaces,
        highest_priority=draw(st.dictionaries(allowed, priority, max_size=2)),
    )
    return codec.canonical(Queue(metadata=draw(metadata(namespaced=False)), spec=spec))


def nodes() -> st.SearchStrategy[Node]:
    """Nodes as people write them."""
    key = st.from_regex(r"[A-Za-z0-9]{1,6}", fullmatch=True)
    taint = st.builds(Taint, key=key, value=st.one_of(st.just(""), key), effect=_EFFECTS)
    spec = st.builds(
        NodeSpec,
        labels=labels(),
        taints=st.lists(taint, max_size=3, unique_by=lambda t: (t.key, t.effect)).map(tuple),
        unschedulable=st.booleans(),
        lost=st.booleans(),
    )
    return st.builds(Node, metadata=metadata(namespaced=False), spec=spec).map(codec.canonical)


def _topologies() -> st.SearchStrategy[Topology]:
    made = st.builds(Topology, required=_LEVELS, preferred=_LEVELS, spread=_LEVELS)
    return made.filter(lambda topology: not topology.required or topology.required != topology.spread)


def _speeds() -> st.SearchStrategy[Speed]:
    progress = st.floats(0, 1e9)
    return st.builds(
        Speed,
        curve=st.lists(progress, max_size=5).filter(lambda curve: not curve or any(curve)).map(tuple),
        work=st.one_of(st.none(), st.floats(1e-6, 1e12)),
        application=text(),
        restart=st.one_of(st.none(), durations()),
    )


def _quotas() -> st.SearchStrategy[Quota]:
    return st.builds(
        Quota,
        cpu=st.one_of(st.none(), st.integers(0, 10**7).map(CpuMillis)),
        memory=st.one_of(st.none(), st.integers(0, 2**50).map(Bytes)),
        gpu=st.one_of(st.none(), st.integers(0, 10_000)),
        jobs=st.one_of(st.none(), st.integers(0, 10_000)),
    )


def _amounts() -> st.SearchStrategy[Amounts]:
    return st.builds(
        Amounts,
        cpu=st.one_of(st.none(), st.integers(0, 10**7).map(CpuMillis)),
        memory=st.one_of(st.none(), st.integers(0, 2**50).map(Bytes)),
        gpu=st.one_of(st.none(), st.floats(0, 10_000)),
    )


def _parts_of(whole: Amounts) -> st.SearchStrategy[Amounts]:
    """No more than these, of what they name."""
    return st.builds(
        Amounts,
        cpu=st.one_of(st.none(), st.integers(0, whole.cpu or 0).map(CpuMillis)),
        memory=st.one_of(st.none(), st.integers(0, whole.memory or 0).map(Bytes)),
        gpu=st.one_of(st.none(), st.floats(0, whole.gpu or 0)),
    )


def _at_least(bound: T | None, amount: T | None) -> T | None:
    return bound if bound is None or amount is None else max(bound, amount)


def _budgets() -> st.SearchStrategy[QueueBudget]:
    resource = st.sampled_from(["cpu", "memory", "gpu", "node"])
    return st.builds(QueueBudget, name=names(), resource=resource, hours=st.floats(1e-3, 1e9))


def _tolerations() -> st.SearchStrategy[Toleration]:
    key = st.from_regex(r"[A-Za-z0-9]{1,6}", fullmatch=True)
    effect = st.one_of(st.none(), _EFFECTS)
    return st.one_of(
        st.builds(Toleration, effect=effect),
        st.builds(Toleration, key=key, value=st.one_of(st.none(), text()), effect=effect),
    )


@st.composite
def _restart_rules(draw: st.DrawFn) -> tuple[RestartRule, ...]:
    codes = draw(st.lists(st.integers(1, 255), max_size=4, unique=True))
    cut = draw(st.integers(0, len(codes)))
    actions: st.SearchStrategy[Any] = st.sampled_from(["Restart", "Fail", "Ignore"])
    groups = [group for group in (codes[:cut], codes[cut:]) if group]
    return tuple(RestartRule(exit_codes=tuple(group), action=draw(actions)) for group in groups)


@st.composite
def _groups(draw: st.DrawFn, runtime: str) -> tuple[Role, ...]:
    """One or more roles, as the runtime wants them."""
    known = _ROLES_OF_RUNTIME.get(runtime)
    if known is None:
        chosen = draw(st.lists(names(), min_size=1, max_size=3, unique=True))
    elif runtime == "mpi":
        chosen = list(known) if draw(st.booleans()) else [draw(names())]
    else:
        chosen = draw(st.lists(st.sampled_from(known), min_size=1, unique=True))
    single = _SINGLE if len(chosen) > 1 or runtime != "mpi" else frozenset[str]()
    return tuple(draw(roles(name, most=1 if name in single else 50)) for name in chosen)


def _arrays() -> st.SearchStrategy[ArraySpec]:
    indices = st.sets(st.integers(0, 10_000), min_size=1, max_size=20).map(lambda s: IndexSet(s).text)
    parallelism = st.one_of(st.none(), st.integers(1, 1000))
    return st.builds(ArraySpec, indices=indices, parallelism=parallelism)


def hostile_documents(kind: type[Object]) -> st.SearchStrategy[dict[str, Any]]:
    """The spec and status of a document that says it is of this kind: fields of the right names and
    mostly of the right types, with values that no writer of ours would give, and sometimes of a type
    that cannot be decoded. For writing straight into a store."""
    hints = get_type_hints(kind, include_extras=True)
    parts = {name: _value_of(msgspec.inspect.type_info(hints[name])) for name in ("spec", "status")}
    return st.fixed_dictionaries(parts)


_HOSTILE_TEXT = st.sampled_from(
    [
        "",
        "zero",
        "0",
        "0-9",
        "3-1",
        "0-9999999",
        "0=a",
        "0-3=nowhere",
        "n0",
        "default",
        "NaN",
        "1e400",
        "-1",
    ]
)
_HOSTILE_INTEGERS = st.sampled_from([-(2**62), -1, 0, 1, 2, 7, 99_999, 2**62])
_HOSTILE_FLOATS = st.sampled_from([-1e308, -1.0, 0.0, 1e-308, 0.5, 3.0, 1.8e9, 1e308])
_UNDECODABLE = st.sampled_from([None, [], {}, "?", -0.5, [[["deep"]]], {"": 0}])


def _value_of(info: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    """Values on the wire for a type, of which few cannot be decoded."""
    return st.integers(0, 99).flatmap(lambda roll: _UNDECODABLE if roll == 0 else _plausible(info))


def _plausible(info: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    match info:
        case msgspec.inspect.Metadata(type=inner):
            return _plausible(inner)
        case msgspec.inspect.StructType(fields=fields):
            needed = {f.encode_name: _value_of(f.type) for f in fields if f.required}
            others = {f.encode_name: _value_of(f.type) for f in fields if not f.required}
            return st.fixed_dictionaries(needed, optional=others)
        case msgspec.inspect.UnionType(types=types):
            return st.one_of([_plausible(each) for each in types])
        case msgspec.inspect.LiteralType(values=values):
            return st.sampled_from([*values])
        case msgspec.inspect.VarTupleType(item_type=item) | msgspec.inspect.ListType(item_type=item):
            return st.lists(_value_of(item), max_size=3)
        case msgspec.inspect.TupleType(item_types=items):
            return st.tuples(*map(_value_of, items)).map(list)
        case msgspec.inspect.DictType(value_type=value):
            return st.dictionaries(_HOSTILE_TEXT, _value_of(value), max_size=2)
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.IntType():
            return _HOSTILE_INTEGERS
        case msgspec.inspect.FloatType():
            return _HOSTILE_FLOATS
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.CustomType():  # quantities
            return st.one_of(_HOSTILE_INTEGERS, st.sampled_from(["1", "500m", "2Gi", "2h", "99999999h"]))
        case _:
            return _HOSTILE_TEXT
