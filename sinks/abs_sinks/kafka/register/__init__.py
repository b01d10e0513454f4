"""The register of a job on Kafka: a compacted topic, read to its end and written under a fence."""
