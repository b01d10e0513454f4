"""PostgreSQL as a side of an audit."""

from abs_audit.postgres.relation import PostgresTable

__all__ = ["PostgresTable"]
