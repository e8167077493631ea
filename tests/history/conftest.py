"""Failures of the contract suites are explained as those of any test are."""

import pytest

pytest.register_assert_rewrite("shoal.testing.history")
