"""Shoal: elastic machine-learning jobs on one shared cluster.

Nothing is imported here, so that `import shoal` and every command stay light; import what you need:
`shoal.client` to talk to a cluster from Python, `shoal.objects` to build Jobs, `shoal.testing` for
the contract suites.
"""

__version__ = "0.1.0"
__all__ = ["__version__"]
