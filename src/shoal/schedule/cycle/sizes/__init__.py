"""How many tasks each elastic job is to have, where it is known how fast they are with how many.

A job says how fast it is by a curve (`Job.speeds`), declared or learned. Jobs of one queue and one
priority that have one share what is theirs: whoever has more than its target gives it to who has less,
task by task, never below its minimum, and only where the other has a place for it. Jobs without a curve
are served as ever.

- `outlook`: what a row says of a job's speed and work, checked, as policies see it
- `slots`: jobs of tasks of different sizes counted in one unit
- `members`: who is sized together
- `seen`: their rows as arrays
- `targets`: the target of each job, a class at a time, the highest priority first
- `exchange`: who has more than its target gives it to who has less
- `policies`: who decides, by name
- `peers`: plans as other people's policies would have them
"""
