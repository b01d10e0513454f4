"""Kafka, for sinks and sources."""
