"""Other people's policies, made again from what they published, to hold Shoal's against.

They divide nodes of equal GPUs among training jobs, which is all that they know of: no queues, no
limits, no topology but the node. `schedule.allot` is what each of them sees.

- `fifo`: first come, first served, at the size asked for; strictly, or with skips
- `easy`: the same with backfill that never delays the first in line (EASY, Lifka 1995)
- `tiresias`: least attained service in two queues (Gu et al., NSDI 2019)
- `optimus`: one more GPU to whom it saves most time, knowing the rest of the work (Peng et al., EuroSys
  2018)
- `dragon`: who waits too long takes workers from those that run (DRAGON, an operator for elastic
  TensorFlow jobs)

Each is re-created from its description, defects included; none is its authors' code.
"""
