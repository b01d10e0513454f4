"""The formats ``abs-...`` as Spark sees them: writers of streams and batches, readers."""
