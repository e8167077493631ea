"""Gradients summed over groups that are swapped under them.

- `sockets`      the connected sockets of a group, and waking the threads that wait on them
- `relay`        how the ends of a group learn each other's addresses: through the coordinator
- `group`        the collectives of one epoch, and how they are interrupted
- `groups`       building them in the background
- `devices`      which device a rank has, and whether a group uses NCCL or gloo
- `nccl`         a NCCL communicator of one epoch
- `layout`       which gradient lies where in which bucket
- `control`      the small vector that rides with the last bucket: counts, readiness, notices
- `bucket_manager`  the buckets of a rank, and how they are exchanged: whole, or through a codec
- `reducer`      gradient hooks that fill buckets and send them while backward goes on
- `rollforward`  after a loss: what everybody has, and what follows from it

Must not know where samples come from, or where the coordinator is.
"""
