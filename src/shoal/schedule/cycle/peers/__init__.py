"""Plans as other people's policies would have them, so that a cluster can be run by any of them.

Those policies (`schedule.baselines`) divide equal GPUs among training jobs and know nothing else. Here
they are asked what they would give to whom, in units that all jobs are counted in; and what they say is
turned into a plan like any other: capacity is free when its task is gone, nobody stops without a
beneficiary that is kept a place, limits of queues hold. Priorities, shares and dates are not theirs.

- `named`: which there are, and what each needs
- `contenders`: jobs as they see them
- `follow`: a plan from what they say
"""
