"""What every Store must do: inherit `StoreContract`, and give a fixture that opens one.

    class TestMine(StoreContract):
        @pytest.fixture
        def harness(self, tmp_path) -> StoreHarness: ...

`shoal.store.base` says the rules in words; each test's name is one of them. What an implementation
cannot do (such as obeying the test's clock) it leaves out of its harness's `capabilities`, and the tests
that need it are skipped, saying so.

- `harness`: what an implementation brings, and what the tests have in common
- `writes`, `status`, `deletion`: what each write does
- `lists`, `watches`, `leases`, `access`: reading, following, taking turns, being allowed
- `concurrency`, `crash`: many writers at once; a writer that is killed
"""

import pytest

_PARTS = "access concurrency crash deletion harness leases lists status watches writes"
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS.split()))

from shoal.testing.store.access import AccessRules  # noqa: E402  after the rewriting of asserts
from shoal.testing.store.concurrency import ConcurrencyRules  # noqa: E402
from shoal.testing.store.crash import CrashRules  # noqa: E402
from shoal.testing.store.deletion import DeletionRules  # noqa: E402
from shoal.testing.store.harness import Capability, StoreHarness  # noqa: E402
from shoal.testing.store.leases import LeaseRules  # noqa: E402
from shoal.testing.store.lists import ListRules  # noqa: E402
from shoal.testing.store.status import StatusRules  # noqa: E402
from shoal.testing.store.watches import WatchRules  # noqa: E402
from shoal.testing.store.writes import WriteRules  # noqa: E402

__all__ = ["Capability", "StoreContract", "StoreHarness"]


class StoreContract(
    WriteRules,
    StatusRules,
    DeletionRules,
    ListRules,
    WatchRules,
    LeaseRules,
    AccessRules,
    ConcurrencyRules,
    CrashRules,
):
    """All rules of `shoal.store.base.Store`. The fixture `harness` gives a `StoreHarness`."""
