from __future__ import annotations

import pytest

from shoal.history.base import History, Logs
from shoal.testing.history import HistoryContract, LogsContract
from tests.support.memory_history import MemoryHistory, MemoryLogs


class TestMemoryHistory(HistoryContract):
    @pytest.fixture
    def history(self) -> History:
        return MemoryHistory()


class TestMemoryLogs(LogsContract):
    @pytest.fixture
    def logs(self) -> Logs:
        return MemoryLogs()
