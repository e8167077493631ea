"""Measurements beside a peer or the physical limit, in one run: `make bench`.

Each module measures one thing and gives `Row`s; none of them is a test, none fails on a figure. What
was measured goes to `docs/benchmarks.md`, with machine, versions and date.
"""
