"""An application measured by a formula, so that what a run should come to can be worked out by hand."""

from pathlib import Path

STEP, SYNC = 1.0, 0.25
"""Seconds of a step on one GPU with the smallest batch, and what two and more add."""


def write_application(
    folder: Path, *, epochs=2, steps=100, noise=0.0, sizes=(8, 16, 32), placements=("1", "2", "11", "4")
) -> Path:
    """Steps take `local / 8` seconds, and `SYNC` more with several replicas; gradients have a squared
    norm of 1 and the variance `noise`; an epoch is so many steps of the smallest batch."""
    folder.mkdir(parents=True)
    rows = ["placement,local_bsz,step_time,sync_time"]
    for placement in placements:
        sync = SYNC if sum(map(int, placement)) > 1 else 0.0
        rows += [f"{placement},{local},{local / 8 + sync},{sync}" for local in (4, 8, 16)]
    (folder / "placements.csv").write_text("\n".join(rows) + "\n")
    rows = ["num_nodes,num_replicas,local_bsz,step_time,sync_time"]
    for nodes, replicas in ((1, 1), (4, 4), (16, 16), (16, 64)):
        rows += [f"{nodes},{replicas},{local},{local / 8 + SYNC},{SYNC}" for local in (4, 8, 16)]
    (folder / "scalability.csv").write_text("\n".join(rows) + "\n")
    for size in sizes:
        rows = ["progress,iteration,metric,grad_sqr,grad_var"]
        for epoch in range(1, epochs + 1):
            done = epoch * steps
            rows.append(f"{done},{done * sizes[0] // size},0.5,1.0,{noise}")
        (folder / f"validation-{size}.csv").write_text("\n".join(rows) + "\n")
    return folder
