"""Runs the revisions on the connection that requester.store.schema hands over."""

from alembic import context

from requester.store.tables import Base

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=Base.metadata, render_as_batch=True, compare_type=True)
with context.begin_transaction():
    context.run_migrations()
