"""The sink for a Delta table."""

from __future__ import annotations

from abs_sinks.lake.sink import LakeSink


class DeltaSink(LakeSink):
    """See ``LakeSink``."""

    scheme = "delta"
