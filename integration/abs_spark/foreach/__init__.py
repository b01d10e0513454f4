"""One micro-batch to one or several sinks under one decision, in ``foreachBatch``."""
