"""A cluster, what waits for it and what happens to it, in one file, and what the scheduler makes of it.

A scenario says what a decision has to get right, shorter than a test in code would, and anybody can type
one: the same file explains a rule, tests it, and asks "what would the scheduler do here". May import
`shoal.schedule`, which decides, and `simulate.cluster`, which does as decided; knows nothing of what is
behind either.

- `spot`: a value of the file and where it stands, so that what is wrong with it is told with its line
- `nodes`, `queues`, `jobs`, `running`: what stands in the file as rows of `schedule.cycle.rows`
- `rules`: how to decide; `events`: what happens later
- `wishes`: what is expected of a decision, as written; `judge`: whether it came so
- `whole`: the file; `sound`: what is wrong with it as a whole, as queues that are above themselves
- `play`: every decision of a file; `record`: as one record each
"""
