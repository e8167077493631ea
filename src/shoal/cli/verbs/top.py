"""`shoal top`: what is used, measured now over a short while, beside what was asked for."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import click

from shoal.cli.options import DURATION, reports, verb
from shoal.cli.output import emit, say
from shoal.cli.settings import Settings, connect
from shoal.objects.meta import Part
from shoal.objects.quantities import CpuMillis
from shoal.objects.text import cores, memory, plural

if TYPE_CHECKING:
    from shoal.client import Client
    from shoal.client.reports import TaskReport, UsageReport


@verb("top")
@click.argument("what", type=click.Choice(["jobs", "nodes", "queues"]), default="jobs")
@click.option("--all-namespaces", "-A", is_flag=True, help="Jobs of all namespaces.")
@click.option("--over", type=DURATION, default="1s", help="How long to measure; 1s by default.")
@reports
def command(
    settings: Settings, what: Literal["jobs", "nodes", "queues"], all_namespaces: bool, over: float
) -> None:
    """Show what jobs, nodes or queues use.

    CPU is in cores, averaged over --over; memory is what is in use now.
    """
    everything = all_namespaces or what != "jobs"
    namespace = "" if everything else settings.namespace
    with connect(settings) as client:
        first = client.usage(namespace)
        time.sleep(min(max(over, 0.05), 60.0))
        last = client.usage(namespace)
        if what == "nodes":
            _nodes(settings, first, last)
        else:
            used = _by_job(first, last)
            if what == "jobs":
                _jobs(settings, used, show_namespace=everything)
            else:
                _queues(client, settings, used)
    if last.unreachable_nodes:
        count = plural(len(last.unreachable_nodes), "node")
        say(f"{count} did not answer: {', '.join(last.unreachable_nodes)}")


class Used(Part, frozen=True, kw_only=True):
    """What one job uses; the document of `top jobs -o json`."""

    namespace: str
    job: str
    tasks: int
    cpu_cores: float
    memory_bytes: int
    peak_memory_bytes: int
    gpu_ratio: float | None = None


@dataclass
class _Sum:
    tasks: int = 0
    cores: float = 0.0
    memory: int = 0
    peak: int = 0

    def add(self, report: TaskReport, rate: float) -> None:
        self.tasks += 1
        self.cores += rate
        self.memory += report.memory_bytes
        self.peak += report.peak_memory_bytes


def _by_job(first: UsageReport, last: UsageReport) -> list[Used]:
    seconds = max(1e-3, last.at - first.at)
    before = {(task.namespace, task.name): task.cpu_seconds for task in first.tasks}
    sums: dict[tuple[str, str], _Sum] = defaultdict(_Sum)
    ratios: dict[tuple[str, str], list[float]] = defaultdict(list)
    for task in last.tasks:
        if task.outcome is not None:
            continue
        spent = task.cpu_seconds - before.get((task.namespace, task.name), 0.0)
        sums[task.namespace, task.job].add(task, max(0.0, spent) / seconds)
        if task.gpu_ratio is not None:
            ratios[task.namespace, task.job].append(task.gpu_ratio)
    used = [
        Used(
            namespace=key[0],
            job=key[1],
            tasks=total.tasks,
            cpu_cores=round(total.cores, 3),
            memory_bytes=total.memory,
            peak_memory_bytes=total.peak,
            gpu_ratio=sum(ratios[key]) / len(ratios[key]) if ratios.get(key) else None,
        )
        for key, total in sums.items()
    ]
    return sorted(used, key=lambda each: (-each.cpu_cores, each.namespace, each.job))


def _jobs(settings: Settings, used: list[Used], *, show_namespace: bool) -> None:
    lead = ["NAMESPACE"] if show_namespace else []
    rows = [
        [
            *([each.namespace] if show_namespace else []),
            each.job,
            str(each.tasks),
            f"{each.cpu_cores:.2f}",
            memory(each.memory_bytes),
            memory(each.peak_memory_bytes),
            "-" if each.gpu_ratio is None else f"{each.gpu_ratio:.0%}",
        ]
        for each in used
    ]
    if settings.output == "name":
        rows = [[f"job/{each.job}"] for each in used]
    if not rows and not settings.machine_readable:
        say("no job has running tasks")
        return
    emit(settings, {"items": used}, [*lead, "JOB", "TASKS", "CPU", "MEMORY", "PEAK", "GPU"], rows)


def _nodes(settings: Settings, first: UsageReport, last: UsageReport) -> None:
    seconds = max(1e-3, last.at - first.at)
    before = {node.name: node.cpu_seconds for node in first.nodes}
    items: list[dict[str, Any]] = []
    rows: list[list[str]] = []
    for node in last.nodes:
        rate = max(0.0, node.cpu_seconds - before.get(node.name, 0.0)) / seconds
        items.append({"node": node, "cpuCores": round(rate, 3)})
        size = node.capacity
        rows.append(
            [
                f"node/{node.name}" if settings.output == "name" else node.name,
                "Ready" if node.ready else "NotReady",
                str(node.tasks),
                f"{rate:.2f}",
                f"{cores(node.requested_cpu)}/{cores(size.cpu)}",
                memory(node.memory_bytes),
                f"{memory(node.requested_memory)}/{memory(size.memory)}",
                f"{node.held_gpus}/{len(size.gpus)}",
            ]
        )
    titles = ["NODE", "STATUS", "TASKS", "CPU", "CPU ASKED", "MEMORY", "MEMORY ASKED", "GPU HELD"]
    emit(settings, {"items": items}, titles, rows)


def _queues(client: Client, settings: Settings, used: list[Used]) -> None:
    from shoal.objects.kinds import JOB, QUEUE

    jobs = [record.object for record in client.list(JOB).records]
    queue_of = {job.key: job.spec.queue for job in jobs}
    sums: dict[str, _Sum] = defaultdict(_Sum)
    for each in used:
        total = sums[queue_of.get((each.namespace, each.job), "")]
        total.tasks += each.tasks
        total.cores += each.cpu_cores
        total.memory += each.memory_bytes
    items: list[dict[str, Any]] = []
    rows: list[list[str]] = []
    for record in client.list(QUEUE).records:
        queue, total = record.object, sums[record.object.metadata.name]
        status, quota = queue.status, queue.spec.quota
        items.append(
            {
                "queue": queue.metadata.name,
                "pending": status.pending,
                "running": status.running,
                "cpuCores": round(total.cores, 3),
                "memoryBytes": total.memory,
                "requested": status.usage,
                "quota": quota,
            }
        )
        rows.append(
            [
                f"queue/{queue.metadata.name}" if settings.output == "name" else queue.metadata.name,
                str(status.pending),
                str(status.running),
                f"{total.cores:.2f}",
                _of(cores(status.usage.cpu), None if quota.cpu is None else cores(CpuMillis(quota.cpu))),
                memory(total.memory),
                _of(memory(status.usage.memory), None if quota.memory is None else memory(quota.memory)),
                _of(f"{status.usage.gpu:.10g}", None if quota.gpu is None else str(quota.gpu)),
            ]
        )
    titles = ["QUEUE", "PENDING", "RUNNING", "CPU", "CPU ASKED", "MEMORY", "MEMORY ASKED", "GPU HELD"]
    emit(settings, {"items": items}, titles, rows)


def _of(used: str, quota: str | None) -> str:
    return used if quota is None else f"{used}/{quota}"
