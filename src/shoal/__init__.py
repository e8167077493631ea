"""Shoal: elastic machine-learning jobs on one shared cluster.

Nothing is imported here, so that `import shoal` and every command stay light; import what you need:
`shoal.client` to talk to a cluster from Python, `shoal.objects` to build Jobs, `shoal.testing` for
the contract suites. `from shoal import report` loads `shoal.report` on first use.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in `typing`, which every command and every task's supervisor would pay for

if TYPE_CHECKING:
    from typing import Any

    from shoal.report import report as report

__version__ = "0.1.0"
__all__ = ["__version__", "report"]


def __getattr__(name: str) -> Any:  # Any: of the one attribute that is loaded on first use
    if name != "report":
        raise AttributeError(f"module 'shoal' has no attribute {name!r}")
    import importlib

    return importlib.import_module("shoal.report").report
