"""The first schema: head, objects, owners, events, leases."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None

_KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_REVISION = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "store_head",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("epoch", sa.Text, nullable=False),
        sa.Column("revision", _REVISION, nullable=False),
        sa.Column("floor", _REVISION, nullable=False),
    )
    op.create_table(
        "store_objects",
        sa.Column("kind", _KEY, primary_key=True),
        sa.Column("namespace", _KEY, primary_key=True),
        sa.Column("name", _KEY, primary_key=True),
        sa.Column("uid", sa.Text, nullable=False),
        sa.Column("labels", _JSON, nullable=False),
        sa.Column("document", sa.LargeBinary, nullable=False),
    )
    op.create_index("store_objects_uid", "store_objects", ["uid"], unique=True)
    op.create_table(
        "store_owners",
        sa.Column("owner_uid", sa.Text, primary_key=True),
        sa.Column("uid", sa.Text, primary_key=True),
    )
    op.create_index("store_owners_uid", "store_owners", ["uid"])
    op.create_table(
        "store_events",
        sa.Column("revision", _REVISION, primary_key=True, autoincrement=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("namespace", sa.Text, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("document", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "store_leases",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("duration_seconds", sa.Float, nullable=False),
        sa.Column("renewals", sa.BigInteger, nullable=False),
    )
