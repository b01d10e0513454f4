"""State and snapshots of the embedded runtime in PostgreSQL and S3."""
