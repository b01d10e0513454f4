"""PostgreSQL, as sinks and state stores know it."""
