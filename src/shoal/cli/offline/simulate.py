"""`shoal simulate`: policies side by side on a list of jobs, in virtual time."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from shoal.cli.failures import Usage
from shoal.cli.offline.multi_value_options import chosen, path_option, policy_option, spread
from shoal.cli.offline.packing import command as packing
from shoal.cli.offline.scenario import command as scenario
from shoal.cli.options import common, reports, whole
from shoal.cli.output import emit, say
from shoal.cli.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.simulate.referee.engine import Run
    from shoal.simulate.report import Record

_NODES = 16
_DEFAULT = ("fifo-skip", "tiresias", "shoal")


class _Group(click.Group):
    """Its options take several words, as long as no option and no subcommand begins."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] in self.commands:
            return super().parse_args(ctx, args)
        return super().parse_args(ctx, spread(args, frozenset({"--workload", "--policy"})))


@click.group(
    "simulate", cls=_Group, invoke_without_command=True, subcommand_metavar="[packing|scenario ...]"
)
@path_option(
    "--workload",
    "workloads",
    multiple=True,
    metavar="FILE...",
    help="Lists of jobs, as CSV: name,time,application,num_replicas,batch_size.",
)
@click.option(
    "--example",
    is_flag=True,
    help="A list that comes with Shoal: 24 jobs of two made-up applications, on 4 nodes of 4 GPUs.",
)
@policy_option("shoal.simulate.policies:POLICIES", ", ".join(_DEFAULT))
@path_option(
    "--profiles",
    metavar="DIR",
    help="A folder of measurements per application; `traces` beside the workload's folder by default.",
)
@click.option(
    "--information",
    type=click.Choice(["none", "declared", "profiles"]),
    default="declared",
    show_default=True,
    help="What Shoal knows: nothing, how much work a job is, or profiles of earlier jobs as well.",
)
@click.option(
    "--declared-error",
    type=float,
    default=1.0,
    show_default=True,
    metavar="FACTOR",
    help="By how much users are typically off when they declare work.",
)
@click.option("--liars", type=float, default=0.0, show_default=True, help="Part that declares a tenth.")
@click.option("--seed", type=whole(0), default=0, show_default=True, help="Of the two before.")
@click.option(
    "--interval", type=float, default=60.0, show_default=True, help="Seconds between decisions."
)
@click.option(
    "--restart", type=float, default=30.0, show_default=True, help="Seconds a change costs a job."
)
@click.option("--interference", type=float, default=0.0, show_default=True, help="Slowdown, below 1.")
@click.option("--nodes", type=whole(1), help="How many nodes; 16 by default, 4 with --example.")
@click.option("--gpus-per-node", type=whole(1), default=4, show_default=True, help="GPUs of each.")
@path_option(
    "--plots", metavar="DIR", help="Write a picture for each list, and a page of them, into this folder."
)
@reports
@common
@click.pass_context
def command(
    context: click.Context, workloads: tuple[Path, ...], example: bool, nodes: int | None, **options: Any
) -> int | None:
    """Try scheduling policies on a list of jobs, in virtual time.

    \b
    shoal simulate --example
    shoal simulate --workload jobs.csv --policy fifo-skip tiresias shoal
    shoal simulate --workload a.csv b.csv --information none --json
    """
    if context.invoked_subcommand is not None:
        return None
    settings = context.find_object(Settings)
    assert settings is not None, "the outer group makes them"
    if example == bool(workloads):
        raise Usage(
            "--example is a list of its own: leave --workload out"
            if example
            else "no list of jobs is given",
            hint="shoal simulate --example, or: shoal simulate --workload FILE --policy NAME",
        )
    with TemporaryDirectory(prefix="shoal-example-") as folder:
        if example:
            from shoal.cli.offline.example import NODES, write_example

            workloads, nodes = (write_example(Path(folder)),), nodes or NODES
        records = _simulate(workloads, nodes=nodes or _NODES, **options)
    emit(settings, records, _TITLES, [_row(record) for record in records])
    return 0


command.add_command(packing)
command.add_command(scenario)


def _simulate(
    workloads: Sequence[Path],
    *,
    policies: tuple[str, ...],
    profiles: Path | None,
    information: str,
    declared_error: float,
    liars: float,
    seed: int,
    interval: float,
    restart: float,
    interference: float,
    nodes: int,
    gpus_per_node: int,
    plots: Path | None,
) -> list[Record]:
    from shoal.simulate.plots import Gallery
    from shoal.simulate.policies import POLICIES
    from shoal.simulate.referee.declaring import Declaring
    from shoal.simulate.referee.engine import Cluster, simulate
    from shoal.simulate.referee.profiles import read_applications
    from shoal.simulate.referee.workload import read_workload
    from shoal.simulate.report import record_of

    names = chosen(policies, POLICIES, _DEFAULT)
    cluster = Cluster(
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        interval=interval,
        restart=restart,
        interference=interference,
    )
    declaring = Declaring(error=declared_error, liars=liars, seed=seed)
    records: list[Record] = []
    gallery = Gallery(plots) if plots is not None else None
    for path in workloads:
        applications = read_applications(profiles or path.resolve().parent.parent / "traces")
        jobs = read_workload(path, applications)
        runs: dict[str, Run] = {}
        for name in names:
            begun = time.monotonic()
            policy = POLICIES[name](information)
            runs[name] = simulate(jobs, policy, cluster, declaring)
            records.append(record_of(runs[name], name, path.stem, policy.information))
            say(f"{path.stem}: {name}, {len(jobs)} jobs, {time.monotonic() - begun:.1f} s")
        if gallery is not None:
            these = [_row(record) for record in records if record.workload == path.stem]
            gallery.add(path.stem, runs, [list(_TITLES), *these])
    if gallery is not None:
        say(f"{gallery.page} shows them")
    return records


_TITLES = (
    "POLICY",
    "WORKLOAD",
    "KNOWS",
    "JCT",
    "P50",
    "P90",
    "P99",
    "MAKESPAN",
    "WAIT",
    "RESTARTS",
    "GPU-H",
    "FTF95",
    "FTFMAX",
    "MS",
)


def _row(record: Record) -> list[str]:
    times = (record.avg_jct, record.p50, record.p90, record.p99, record.makespan, record.wait)
    return [
        record.policy,
        record.workload,
        record.information,
        *(f"{each:,.0f}" for each in times),
        f"{record.restarts_per_job:.1f}",
        f"{record.gpu_hours:,.0f}",
        f"{record.ftf_p95:.1f}",
        f"{record.ftf_max:.1f}",
        f"{record.ms_per_decision:.2f}",
    ]
