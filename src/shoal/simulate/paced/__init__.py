"""A list of paced jobs, run by several policies: the same file here in virtual time, and on real tasks.

A paced job does no work: each of its steps is a pause, as long as its curve says for the tasks that it
has. So how fast it is with how many is known exactly, and what differs between policies is where they
put tasks, and when. Where real processes are ranked as the simulator ranks them, its figures mean
something.

- `jobs`: the file, and the jobs of one seed
- `compare`: run by policies, in virtual time, and put in order, with ties named
"""
