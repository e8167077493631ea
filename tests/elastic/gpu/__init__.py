"""Elastic training on devices: every test runs on the CPU, and on a GPU where there is one.

With a single GPU they cover: gloo over its tensors for two ranks, NCCL groups of one that are rebuilt,
autocast, scaled gradients, copies and checkpoints from its memory, its random state. What they leave
out, for it needs two GPUs: NCCL between ranks, and its abort while a peer is gone.
"""
