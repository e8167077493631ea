"""Hyperparameter search: which point of a space to try next, and which running trial to end.

It stands beside `schedule`: it imports `objects` alone and does no I/O. The experiment controller
(`shoal.control.experiment`) drives it with what it stores; `shoal.search.Study` is the same search
in the process of a script. Optuna carries out the model-based algorithms; it is an extra
(`pip install shoal[search]`) and is imported in one module, when such an algorithm is used.

| module | what it holds |
| --- | --- |
| `study` | `Search`: asks and results in a recorded order, restored from records; `Study`, for scripts |
| `samplers` | the seam `Sampler`; random and grid search, population based training |
| `optuna_sampler` | TPE, GP, CMA-ES, QMC, NSGA-II |
| `stopping` | ASHA, Hyperband, median, percentile and threshold |
| `space` | points: drawing, grids, perturbation, conditional parameters |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.search.study import Study as Study

__all__ = ["Study"]


def __getattr__(name: str) -> object:
    """Load `Study` when it is used: the controller needs other modules only."""
    if name == "Study":
        from shoal.search.study import Study

        return Study
    raise AttributeError(f"module {__name__} has no attribute {name}")
