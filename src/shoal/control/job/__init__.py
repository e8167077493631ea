"""The job controller: what a Job's slots and its tasks' ends ask for next.

`reconcile_job` is pure: (observed, now) -> actions. The controller applies them in order and may die
after any of them: the next pass finishes the work. One status write comes first and records every
end that is about to be acknowledged, so counters, incarnations and outcomes move together.

- `observe`: what a pass knows, and the draft of the status that it writes
- `actions`: what a pass may ask for
- `completion`: ended tasks become outcomes, restarts or failures; success rule, limits, cancellation
- `dependencies`: the jobs that a job waits for, and what their end means for it
- `reconcile`: the members of the current attempt, what is to start and stop, the phase; pure
- `controller`: the effects
"""
