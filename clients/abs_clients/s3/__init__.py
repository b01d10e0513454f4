"""S3, as sinks, sources and snapshot stores know it."""
