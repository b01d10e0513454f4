"""Spark's checkpoint: what its own files say, and the files that the project keeps beside them."""
