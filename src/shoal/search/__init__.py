"""Hyperparameter search: which point of a space to try next, and which running trial to end.

It stands beside `schedule`: it imports `objects` alone and does no I/O. The experiment controller
(`shoal.control.experiment`) drives it with what it stores; `shoal.search.Study` is the same search
in the process of a script. Optuna carries out the model-based algorithms; it is an extra
(`pip install shoal[search]`) and is imported in one module, when such an algorithm is used.

| module | what it holds |
| --- | --- |
| `observations` | `MetricSource`: how the controller reads the metric points of a job |
"""
