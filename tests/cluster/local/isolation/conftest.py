"""The fixtures of this folder's tests."""

from tests.cluster.local.isolation.fixtures import bench, own_bench

__all__ = ["bench", "own_bench"]
