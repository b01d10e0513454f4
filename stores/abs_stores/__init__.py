"""State and snapshots of the embedded runtime that are kept in PostgreSQL and S3."""
