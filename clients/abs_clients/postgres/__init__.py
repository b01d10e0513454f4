"""PostgreSQL, for sinks and state stores."""
