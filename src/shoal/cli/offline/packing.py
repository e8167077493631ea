"""`shoal simulate packing`: policies that put pods with parts of GPUs on nodes, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from shoal.cli.offline.multi_value_options import chosen, path_option, policy_option, spread
from shoal.cli.options import common, reports
from shoal.cli.output import emit, say
from shoal.cli.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.simulate.packing.report import Record


class _Command(click.Command):
    """Its options take several words."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spread(args, frozenset({"--policy", "--seeds"})))


@click.command("packing", cls=_Command)
@path_option(
    "--nodes",
    "node_file",
    required=True,
    metavar="FILE",
    help="sn,cpu_milli,memory_mib,gpu,model; nodes without GPUs take no part.",
)
@path_option(
    "--pods",
    "pod_file",
    required=True,
    metavar="FILE",
    help="name,cpu_milli,memory_mib,num_gpu,gpu_milli, and gpu_spec if there is one.",
)
@policy_option("shoal.simulate.packing.policies:POLICIES", "All")
@click.option(
    "--seeds",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="N...",
    help="Of the orders in which pods arrive; 42 to 51 by default.",
)
@click.option(
    "--demand",
    type=float,
    default=130.0,
    show_default=True,
    help="Percent of all GPUs that the pods ask for in the end.",
)
@reports
@common
@click.pass_obj
def command(settings: Settings, **options: Any) -> int:
    """Try policies that put pods with parts of GPUs on nodes.

    \b
    shoal simulate packing --nodes nodes.csv --pods pods.csv --policy best-fit fgd shoal
    shoal simulate packing --nodes nodes.csv --pods pods.csv --seeds 1 2 3 --json
    """
    records = _pack(**options)
    emit(settings, records, _TITLES, [_row(record) for record in records])
    return 0


def _pack(
    *, node_file: Path, pod_file: Path, policies: tuple[str, ...], seeds: tuple[int, ...], demand: float
) -> list[Record]:
    from shoal.simulate.packing.experiment import SEEDS, pack
    from shoal.simulate.packing.nodes import read_nodes
    from shoal.simulate.packing.pods import read_pods
    from shoal.simulate.packing.policies import POLICIES
    from shoal.simulate.packing.report import record_of

    names = chosen(policies, POLICIES, POLICIES)
    nodes, pods = read_nodes(node_file), read_pods(pod_file)
    if nodes.without_gpu:
        say(f"{node_file}: {nodes.without_gpu} nodes without GPUs take no part")
    records: list[Record] = []
    for name in names:
        runs = [pack(nodes, pods, name, seed, demand) for seed in dict.fromkeys(seeds or SEEDS)]
        records.append(record_of(name, nodes, pods, demand, runs))
        say(f"{name}: {len(runs)} runs, {sum(run.cpu_seconds for run in runs):.1f} s")
    return records


_TITLES = (
    "POLICY",
    "KNOWS",
    "NODES",
    "PODS",
    "RUNS",
    "GPU %",
    "LEAST",
    "MOST",
    "PLACED",
    "REFUSED",
    "CPU S",
)


def _row(record: Record) -> list[str]:
    runs = len(record.seeds)
    return [
        record.policy,
        record.information,
        str(record.nodes),
        str(record.pods),
        str(runs),
        f"{record.mean:.2f}",
        f"{min(record.allocated_gpu_percent):.2f}",
        f"{max(record.allocated_gpu_percent):.2f}",
        f"{sum(record.placed) / runs:.0f}",
        f"{sum(record.refused) / runs:.0f}",
        f"{sum(record.cpu_seconds) / runs:.2f}",
    ]
