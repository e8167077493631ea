"""Fixtures of the tests that start real supervisors; imported where they are used."""

import pytest

from tests.cluster.local.isolation.harness import Bench, users


@pytest.fixture(params=users(), ids=lambda user: user.name)
def bench(request):
    """Tasks by hand, as this user and, when that is root, as an unprivileged one."""
    made = Bench(request.param)
    yield made
    made.close()


@pytest.fixture
def own_bench():
    """Tasks by hand, as this user."""
    made = Bench(users()[0])
    yield made
    made.close()
