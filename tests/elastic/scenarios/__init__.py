"""The reference's scenarios with real training: actors that die, wait and break where they are told to.

`stage` runs a job of actors (`programs/actor.py`); `islands` are networks that can be cut. Each test
names its scenario as `training-A1`, and says where a peer's policy differs from ours. `test_names`
checks that none is missing.

| scenario | where |
| --- | --- |
| A1 to A4 | `test_replicas` |
| A5, A7, A10 | `coordinator/test_scenarios`, in virtual time |
| A6, A11 | `test_collectives` |
| A8 | `test_errors` |
| A9 | `test_reading` |
| A12 | `optim/test_outer`, `optim/test_local_ranks` |
| A13 | `test_changes`, `tests/soak` |
| B1 to B6 | `test_members`; also `coordinator/test_scenarios` |
| B7 to B10 | `coordinator/test_scenarios` |
| B11 | `test_divergence` |
| B12 | `test_samples` |
| C1 to C7 | `detect/swim` |
| D1 | `coordinator/test_scenarios`, `test_changes` |
| N1 | `coordinator/test_scenarios`, `coordinator/test_process`, `coordinator/test_model` |
| N2 | `test_changes`, `coordinator/test_process` |
| N3, P2 | `test_errors` |
| N6 | `test_changes`, `coordinator/test_scenarios` |
| N7 | `test_partition`, `coordinator/test_scenarios`, `coordinator/test_model` |
| N8 | `checkpoint/test_crash`, `checkpoint/test_disk_full` |
| N9 | `test_samples`, `test_numerics` |
| N10 | `test_stale`, `coordinator/test_scenarios` |
| N11, N12 | `test_changes`; N12 also `tests/scenarios/test_elastic_training` |
| P1 | `test_divergence` |
| P3 | `test_stress`: 20 s of `make test`, hours of `make soak` |
| V1 | `detect/test_sidecar`, `detect/test_findings` |
| H1 | `test_faults` |
"""
