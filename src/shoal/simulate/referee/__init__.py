"""Training jobs on nodes of equal GPUs, with measured step times and measured gradient noise.

The rules are those of the simulator published with Pollux (OSDI 2021), so that results can be held
against its published ones:

- `profiles`: six applications as they were measured, and any other that is measured the same way
- `workload`: a list of jobs to submit
- `training`: one job's way through its epochs
- `engine`: the loop: jobs advance an interval, then the policy places them
"""
