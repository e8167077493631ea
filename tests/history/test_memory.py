from __future__ import annotations

import pytest

from shoal.history.base import History, Logs
from shoal.history.memory import MemoryHistory, MemoryLogs
from shoal.testing.history import HistoryContract, LogsContract


class TestMemoryHistory(HistoryContract):
    @pytest.fixture
    def history(self) -> History:
        return MemoryHistory()


class TestMemoryLogs(LogsContract):
    @pytest.fixture
    def logs(self) -> Logs:
        return MemoryLogs()
