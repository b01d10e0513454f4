"""Kafka, as sinks and sources know it."""
