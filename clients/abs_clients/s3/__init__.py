"""S3, for sinks, sources and snapshot stores."""
