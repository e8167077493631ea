"""The samples of a step, and how they are dealt to workers.

The order of an epoch is a pure function of (seed, epoch); the only state is the cursor, which moves with
applied steps. So each sample is used exactly once an epoch whatever becomes of the members, and the same
cursor gives the same next step to any number of them.
"""
