"""The decision core, second edition, beside the one in `cycle` until it passes everything that one does.

`cycle.Core` turns rows into changed actions. It works in one direction: `state` holds nodes and jobs as
columns, `queues` what each queue holds and may hold, `placement` finds nodes for gangs, `reservation`
dates and the capacity that others may use before them, `preemption` evictions and moves that complete a
gang, `elastic` and `sizing` sizes beyond minimums, `explain` the reason of a job that waits.
"""
