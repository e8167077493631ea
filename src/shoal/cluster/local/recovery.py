"""What an agent does first: find again what an earlier one of its node has left, on disk and running.

1. Tasks that were launched and not seen to end are attended to: each monitor finds its supervisor,
   takes the exit that happened in between, finishes what a dead supervisor left, or starts one that
   never was.
2. Tasks that were admitted and not launched stay so, unless their ports are no longer ours: then they
   go, and a repeated start admits them anew.
3. Launched tasks that the ledger does not know (it was damaged, lost, or is an older copy) are
   taken over with the copy of their record that their folder holds; `begun` in it, and their log, keep
   them from running a second time.
4. Other folders of tasks that the ledger does not know (an acknowledgement was cut short, or the copy is
   damaged) are removed, and before that whatever runs there is ended.
5. Trash is emptied, and what an earlier agent could not remove is tried once more; control groups and
   sandboxes without a task are removed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from shoal import faults, statefiles
from shoal.cluster.local import launch, processes, task_monitor, taskfiles
from shoal.cluster.local.isolation import cgroups, cleanup
from shoal.cluster.local.ledger import record_of
from shoal.cluster.local.node import Node
from shoal.cluster.local.task_monitor import supervisor_of


def recover(node: Node) -> None:
    """Take over; returns at once, the rest happens in the loop."""
    node.ledger.trim(node.clock.now())
    _adopt(node)
    for record in list(node.ledger.tasks.values()):
        if record.can_be_taken_back:
            ports = set(record.progress.endpoint.ports.values())
            if not node.ports.hold(ports):
                node.release((record.key,))
        elif record.holds_capacity:
            found = node.attend(record)
            found.look_for_start()  # before anybody asks: a task that runs is never shown otherwise
            node.loop.soon(found.begin)
    faults.point("agent.recover.attended")
    known = set(node.ledger.tasks)
    for folder in sorted(node.paths.tasks.iterdir()):
        if launch.key_of(folder) not in known:
            _end_stray(node, folder)
    for folder in sorted(node.paths.work.iterdir()):
        if launch.key_of(folder) not in known and not (node.paths.tasks / folder.name).exists():
            node.discard((folder,))
    node.discard(tuple(node.paths.quarantine.iterdir()))
    _sweep(node)


def _adopt(node: Node) -> None:
    adopted: list[str] = []
    for folder in sorted(node.paths.tasks.iterdir()):
        key = launch.key_of(folder)
        known = node.ledger.tasks.get(key)
        if key in node.ledger.forgotten or (known is not None and not known.can_be_taken_back):
            continue
        record = statefiles.read(folder / taskfiles.RECORD, record_of, node.damaged)
        if record is not None and record.key == key:
            stop = taskfiles.read(str(folder), taskfiles.STOP, taskfiles.Stop, node.damaged)
            node.adopt(record, stop)
            adopted.append(key.name)
    if adopted:
        node.damaged(f"the ledger did not know {', '.join(adopted)}: taken over from the tasks' folders")


def _end_stray(node: Node, folder: Path) -> None:
    """End what runs there, then remove the folder. In a thread of its own."""

    def job() -> Callable[[], None]:
        problems: list[str] = []
        processes.kill(supervisor_of(folder, problems.append))
        if (folder / taskfiles.BEGUN).exists():
            task_monitor.settle(str(folder), node.cgroup_parents, problems.append)

        def done() -> None:
            for problem in problems:
                node.damaged(problem)
            node.discard((folder, node.paths.work / folder.name))

        return done

    def failed(error: Exception) -> Callable[[], None]:
        return lambda: node.problem("CleanupFailed", f"{folder} cannot be cleaned up: {error}")

    node.loop.work(job, failed)


def _sweep(node: Node) -> None:
    """Control groups and sandboxes that a crash has left. In a thread of its own."""
    living = {f"{key.namespace}.{key.name}" for key, r in node.ledger.tasks.items() if r.holds_capacity}
    living |= {folder.name for folder in node.paths.tasks.iterdir()}

    def job() -> Callable[[], None]:
        left = cgroups.remove_strays(node.isolations.cgroup_parents, living)
        cleanup.sweep_sandboxes(node.home.sandboxes)
        return lambda: _report(node, [f"the control group {path} cannot be removed" for path in left])

    def failed(error: Exception) -> Callable[[], None]:
        return lambda: _report(node, [f"control groups and sandboxes cannot be removed: {error}"])

    node.loop.work(job, failed)


def _report(node: Node, problems: list[str]) -> None:
    if problems:
        node.problem("CleanupFailed", "; ".join(problems))
