"""Where Alembic starts: run on the connection that `upgrade` gives, in its transaction."""

from alembic import context

from shoal.store.sql.schema import METADATA, VERSION

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=VERSION.name,
    render_as_batch=True,
)
context.run_migrations()
