"""The Kafka sink: from Arrow batches to records that appear exactly once."""
