"""Checkpoints: states of committed steps, written behind the training's back and never seen torn.

- `saver`     what a trainer calls: stage a state, commit its step, the rest happens in a thread
- `loader`    the newest complete state, from memory or disk
- `tree`      a state as plain data and named tensors, and back; no pickle
- `layout`    where each tensor lies in a flat buffer, and the hashes of what it holds
- `buffer`    which of two slots is filled, committed, or being written
- `slots`     one half of the double buffer, in shared memory or private
- `memory`    the folder in shared memory that outlives the trainer, and the rules for removing it
- `header`    the first page of a slot: what is in it and whether it is complete
- `durable`   one checkpoint on disk: written aside, published, made visible, old ones removed
- `manifest`  what a checkpoint says of itself, and the list of those in a folder
- `dcp`       tensors in files in the format of torch.distributed.checkpoint, read without running code

Nothing is imported here: `memory`, `header` and `manifest` stay free of torch, for processes that only
clean up or look. Knows nothing of views, groups or samples.
"""
