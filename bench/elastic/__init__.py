"""Elastic training beside its peers: what a lost, a stopped and a new worker cost.

    python -m bench.elastic [MEASUREMENT ...] [--kills N] [--peers FOLDER] [--write] [--quick] [--show]

A measurement starts real jobs, each worker a process of its own, and harms them by process id. A worker
appends one line per step to its own file; all figures are computed from these files. Torch is imported
in the workers alone.

- `marks`          the workers' files: how a line is written, how a driver follows them
- `timeline`, `growth`     from lines and the time of a signal to pauses, redone and lost steps (pure)
- `spread`         medians, percentiles, and the interval of paired ratios (pure)
- `harm`, `mischief`       when a worker is hit, and where; what keeps a live one from answering
- `models`         the models and their data, the same for every system
- `workers/`       one training script per system; each runs as `python -m bench.elastic.workers.X`
- `loops/`         one loop as each system wants it written
- `jobs/`          how a job of each system is started, enlarged and ended
- `situation`, `pauses`    a series of harms to jobs of each system
- `recovery` (G1-G4), `headless` (G5), `silence` (G6), `evictions` (G7), `larger` (G8), `overhead` (G9),
  `allreduce` (G10, G11), `accounting` (G16, G18), `checkpoint` (G17), `rebuild` (G19), `lines` (G20),
  `codecs`         the measurements
- `peers`          the virtual environment with the peers that pip has (`peers.txt`)
- `results`        what each measurement gave, one file each: a run may be made in parts
- `page`, `misses`         the section of `docs/benchmarks.md`
"""
