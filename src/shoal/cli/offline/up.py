"""`shoal up`: a server and an agent per node, on this machine, under one home; and `shoal down`, which
ends them: jobs continue at the next `shoal up`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from shoal.cli.edits import confirm
from shoal.cli.failures import Usage
from shoal.cli.offline.start import check_room
from shoal.cli.options import CPU, DURATION, MEMORY, assume_yes, listed_option, reports, verb, whole
from shoal.cli.output import emit, say, write_document, write_names
from shoal.cli.settings import Settings, connect
from shoal.objects.errors import Invalid, NotFound, Unavailable
from shoal.objects.job import Job
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.text import cores, memory, plural

if TYPE_CHECKING:
    from shoal.cluster.local.home import Home
    from shoal.cluster.local.nodes import NodeDecl
    from shoal.cluster.local.settings import ClusterSettings
    from shoal.objects.node import Node

_MOST_NODES = 64
_READY_SECONDS = 10.0
_FORGET_SECONDS = 5.0
_SHOWN = 10
_HAVE_TASKS = ("Starting", "Running")


@verb("up")
@click.option(
    "--nodes", "said", default="", metavar="N|FILE", help="A number, or a file that lists them."
)
@click.option("--cpu", type=CPU, help="Cores of each node; an equal part of the machine by default.")
@click.option("--memory", type=MEMORY, help="Memory of each node; an equal part by default.")
@click.option(
    "--gpu", type=whole(0), help="GPUs of each node, of those found here; shared evenly by default."
)
@click.option(
    "--topology",
    metavar="LABEL,...",
    help="Node labels that are levels of the topology, the widest first, such as block,rack.",
)
@listed_option(
    "--policy", "name", of="shoal.schedule.plan:POLICIES", metavar="NAME", help="The scheduling policy:"
)
@click.option(
    "--record", type=whole(0), metavar="N", help="Keep the newest N decisions for `shoal replay`."
)
@reports
def command(
    settings: Settings,
    said: str,
    cpu: CpuMillis | None,
    memory: Bytes | None,
    gpu: int | None,
    topology: str | None,
    name: str | None,
    record: int | None,
) -> None:
    """Start Shoal on this machine.

    \b
    shoal up                      the machine as one node
    shoal up --nodes 4 --cpu 4    four nodes of four cores, to try gangs and preemption
    shoal up --nodes nodes.yaml   [{name: big, cpu: 8, memory: 32Gi, labels: {disk: ssd}}, ...]

    Several nodes on one machine are for trying things: together they may declare more cores and memory
    than the machine has. --gpu shares out real devices only; a file may declare devices for trying, as a
    number (gpus: 2). What runs already keeps running: the agent of a changed node restarts, its tasks
    do not.

    --topology, --policy and --record persist; changes take effect immediately. --topology '' leaves only
    the nodes themselves as a level.
    """
    if settings.remote:
        raise Usage(
            "up starts Shoal on this machine, but the context names another server",
            hint="name the folder for its state: shoal up --home ~/.shoal",
        )
    from shoal.cluster.local.components import ensure_up
    from shoal.cluster.local.home import Home
    from shoal.cluster.local.nodes import load

    check_room(settings.home)
    home = Home(settings.home)
    before = {node.name for node in load(home)}
    declared = _declared(home, said, cpu, memory, gpu)
    kept = _kept(home, topology, name, record)
    started = ensure_up(home, declared)
    nodes = load(home)
    _forget(settings, before - {node.name for node in nodes})
    late = _not_ready(settings, [node.name for node in nodes])
    document = {
        "home": str(home.path),
        "started": {"server": started.server, "nodes": started.nodes},
        "nodes": nodes,
        "topology": kept.topology,
        "policy": kept.policy,
        "record": kept.record,
        "notReady": late,
    }
    rows = [_row(node, node.name in started.nodes) for node in nodes]
    if settings.output == "name":
        rows = [[f"node/{node.name}"] for node in nodes]
    emit(settings, document, ["NODE", "CPU", "MEMORY", "GPU", ""], rows)
    for name in late:
        say(f"node/{name} does not take tasks yet; see {settings.spelt(f'explain node/{name}')}")
    if kept.policy != type(kept)().policy:
        back = settings.spelt("up --policy shoal")
        say(f"the scheduling policy is {kept.policy}; {back} restores the default")
    word = "is up" if started else "was up already"
    say(f"Shoal {word} (state in {home.path}); stop it with: {settings.spelt('down')}")


def _kept(home: Home, topology: str | None, name: str | None, record: int | None) -> ClusterSettings:
    """What holds for the cluster, after what was said of it has been kept."""
    from shoal.cluster.local.settings import load, problems, save
    from shoal.objects.job_rules import levels_problem

    before = load(home)
    after = before
    if topology is not None:
        levels = tuple(level.strip() for level in topology.split(",")) if topology.strip() else ()
        if problem := levels_problem(levels):
            raise Usage(f"--topology: {problem}")
        after = msgspec.structs.replace(after, topology=levels)
    if name is not None:
        from shoal.schedule.plan import policy_named

        after = msgspec.structs.replace(after, policy=policy_named(name).rules.policy)
    if record is not None:
        after = msgspec.structs.replace(after, record=record)
    if after != before:
        save(home.create(), after)
    for field, problem in problems(after).items():
        say(
            f"{home.settings_json}: {problem}; the setting before stays in effect until --{field} "
            "sets it again"
        )
    return after


def _forget(settings: Settings, gone: set[str]) -> None:
    """Delete the objects of nodes that are no longer declared: the user has removed them,
    and nothing runs there, so no job is to wait for them."""
    from shoal.objects.kinds import NODE
    from shoal.objects.node import Node

    with connect(settings) as client:
        for name in sorted(gone):
            try:
                # not before the server has seen that it is gone, or it would make the object again
                client.wait(Node, "", name, _is_unlisted, timeout_seconds=_FORGET_SECONDS)
                client.delete(NODE, "", name)
            except (TimeoutError, NotFound):
                continue  # it stays in the list as NotReady, for a person to delete


def _is_unlisted(node: Node | None) -> bool:
    return node is None or any(
        condition.type == "Ready" and condition.reason == "NotListed"
        for condition in node.status.conditions
    )


def _not_ready(settings: Settings, names: list[str]) -> list[str]:
    """Wait a little until clients see the nodes; the names of those that are not."""
    from shoal.objects.node import Node

    def ready(node: Node | None) -> bool:
        conditions = () if node is None else node.status.conditions
        return any(c.type == "Ready" and c.status == "True" for c in conditions)

    deadline = time.monotonic() + _READY_SECONDS
    late: list[str] = []
    with connect(settings) as client:
        for name in names:
            try:
                client.wait(Node, "", name, ready, max(0.01, deadline - time.monotonic()))
            except TimeoutError:
                late.append(name)
    return late


def _declared(
    home: Home, said: str, cpu: CpuMillis | None, memory: Bytes | None, gpu: int | None
) -> tuple[NodeDecl, ...] | None:
    """The nodes that are asked for; None: those that the home has."""
    from shoal.cluster.local.nodes import declare, load

    sizes = cpu is not None or memory is not None or gpu is not None
    if said and not said.isdecimal():
        if sizes:
            raise Usage("the file says how large each node is; leave --cpu, --memory and --gpu out")
        return _from_file(Path(said))
    if not said and not sizes:
        return None
    count = int(said) if said else max(1, len(load(home)))
    if not 1 <= count <= _MOST_NODES:
        raise Usage(f"--nodes is a number from 1 to {_MOST_NODES}, or a file")
    nodes = declare(count, cpu=cpu, memory=memory)
    return nodes if gpu is None else _dealt(nodes, gpu)


def _from_file(file: Path) -> tuple[NodeDecl, ...]:
    from shoal.cluster.local.nodes import parse
    from shoal.objects.yaml import parse_documents

    try:
        text = file.read_bytes()
    except OSError as error:
        raise Usage(
            f"--nodes {file}: {error.strerror}", hint="give a number of nodes, or a file that lists them"
        ) from error
    documents, problems = parse_documents(text)
    if problems:
        raise Invalid(f"{file} cannot be read: {problems[0]}", tuple(problems))
    if len(documents) != 1:
        raise Invalid(f"{file} holds {len(documents)} documents; one list of nodes is wanted")
    return parse(documents[0].value)


def _dealt(nodes: tuple[NodeDecl, ...], gpu: int) -> tuple[NodeDecl, ...]:
    """So many of the machine's GPUs for each node."""
    devices = sorted(device for node in nodes for device in node.gpus)
    if len(devices) < gpu * len(nodes):
        raise Usage(
            f"{len(nodes)} x {gpu} GPUs are asked for, and this machine has {len(devices)}",
            hint="shoal doctor shows what was found; to try scheduling without devices, declare "
            "a number of them in a file: shoal up --nodes nodes.yaml with gpus: 2",
        )
    return tuple(
        msgspec.structs.replace(node, gpus=tuple(devices[place * gpu : (place + 1) * gpu]))
        for place, node in enumerate(nodes)
    )


def _row(node: NodeDecl, started: bool) -> list[str]:
    return [
        node.name,
        cores(node.cpu),
        memory(node.memory),
        str(len(node.gpus)),
        "started" if started else "",
    ]


@verb("down")
@assume_yes
@click.option(
    "--grace", type=DURATION, default="10s", help="Between SIGTERM and SIGKILL of tasks; 10s by default."
)
@reports
def down(settings: Settings, yes: bool, grace: float) -> None:
    """Stop Shoal on this machine.

    The tasks of running jobs are stopped, gracefully; the next `shoal up` (or `run`) starts them again.
    Nothing is deleted: all state stays in the home's folder.
    """
    if settings.remote:
        raise Usage(
            "down stops Shoal on this machine, but the context names another server",
            hint="name the home: shoal down --home ~/.shoal",
        )
    from shoal.cluster.local.home import Home
    from shoal.cluster.local.shutdown import shut_down

    running = _running(settings)
    if running:
        shown = ", ".join(_spelt(job) for job in running[:_SHOWN])
        more = f" and {len(running) - _SHOWN} more" if len(running) > _SHOWN else ""
        they = "It continues" if len(running) == 1 else "They continue"
        say(f"{plural(len(running), 'job')} with running tasks: {shown}{more}")
        confirm(f"Stop the tasks? {they} at the next `shoal up`.", yes=yes)
    stopped = shut_down(Home(settings.home), grace_seconds=float(grace))
    if settings.output == "name":
        write_names(f"node/{node}" for node in stopped.nodes)
    elif settings.machine_readable:
        jobs = [{"namespace": job.metadata.namespace, "name": job.metadata.name} for job in running]
        write_document(
            settings,
            {
                "home": str(settings.home),
                "stopped": {"server": stopped.server, "nodes": stopped.nodes},
                "jobs": jobs,
            },
        )
    elif not stopped:
        say(f"Shoal is not running here (state in {settings.home})")
    else:
        parts = ["the server"] if stopped.server else []
        parts += [plural(len(stopped.nodes), "node")] if stopped.nodes else []
        say(f"stopped {' and '.join(parts)}; state stays in {settings.home}")


def _running(settings: Settings) -> list[Job]:
    """Jobs with tasks, as far as there is a server to ask; one of another version will do."""
    from shoal.objects.kinds import JOB

    with connect(settings, timeout_seconds=5.0, check_version=False) as client:
        try:
            jobs: list[Job] = [record.object for record in client.list(JOB).records]
        except Unavailable:
            return []
    return [job for job in jobs if job.status.phase in _HAVE_TASKS]


def _spelt(job: Job) -> str:
    namespace = "" if job.metadata.namespace == "default" else f" (namespace {job.metadata.namespace})"
    return f"job/{job.metadata.name}{namespace}"
