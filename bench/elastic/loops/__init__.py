"""One training loop in plain torch, and the same for each system: what a user has to change (G20).

Scheduler, clipping, evaluation, checkpoint and resumption; every script runs as it stands:
`python -m bench.elastic.loops.NAME FOLDER`.
"""
