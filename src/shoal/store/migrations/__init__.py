"""Schema changes of SQL stores, run by Alembic when a store of an older Shoal is opened.

`versions/` holds one file per schema, oldest first. A schema that was released is never changed:
the next one is another file. Old ones are tried by `tests/store/test_migrations.py`.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

__all__ = ["known", "upgrade"]


def known() -> tuple[str, ...]:
    """The schemas there are, newest first."""
    return tuple(step.revision for step in ScriptDirectory.from_config(_config()).walk_revisions())


def upgrade(connection: Connection, target: str = "head") -> None:
    """Bring the database to a schema, inside the transaction that the connection is in."""
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, target)


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return config
