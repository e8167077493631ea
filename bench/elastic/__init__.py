"""Elastic training beside its peers: what a lost, a stopped and a new worker cost.

    python -m bench.elastic [MEASUREMENT ...] [--kills N] [--peers FOLDER] [--write]

A measurement starts real jobs, each worker a process of its own, and harms them by process id. A worker
appends one line per step to its own file; all figures are computed from these files. Torch is imported
in the workers alone, but for the programs in `workers/`.

- `marks`          the workers' files: how a line is written, how a driver follows them
- `timeline`       from lines and the time of a signal to a pause, redone and lost steps (pure)
- `spread`         medians, percentiles, and the interval of paired ratios (pure)
- `harm`           when a worker is hit: at a random phase, or in the middle of its backward pass
- `models`         the two models and their data, the same for every system
- `workers/`       one training script per system; each runs as `python -m bench.elastic.workers.X`
- `jobs/`          how a job of each system is started, enlarged and ended
- `recovery`, `growth`, `overhead`, `allreduce`, `accounting`, `lines`     the measurements
- `peers`          the virtual environment with the peers that pip has (`peers.txt`)
- `report`         tables, and the section of `docs/benchmarks.md`
"""
