"""The PostgreSQL sink: from Arrow batches to rows that appear exactly once."""
