"""The job controller: what a Job's slots and its tasks' ends ask for next.

`decide` is pure: (what is seen, now) -> actions. The controller applies them in order and may die
after any of them: the next pass finishes the work. One status write comes first and records every
end that is about to be acknowledged, so counters, incarnations and outcomes move together.

- `seen`: what a pass knows: the job, its tasks, which nodes are silent or lost
- `actions`: what a pass may ask for
- `book`: the per-index facts of one role, opened from the status and written back
- `ends`: ended tasks become outcomes, restarts or failures; budgets
- `members`: who belongs to the current attempt; resizes, preemption and lost nodes
- `nodehours`: for how long tasks have been on nodes
- `verdict`: success rule, limits, cancellation
- `starts`: which slots lack a task, and the task to start there
- `phase`: the status that people read
- `decide`: the order of the above
- `controller`: the effects
"""
