"""The sink for a Delta table."""

from __future__ import annotations

import pyarrow as pa

from abs_clients.delta.log import DeltaLog
from abs_sinks.delta.options import DeltaOptions
from abs_sinks.lake.sink import LakeSink, Place


class DeltaSink(LakeSink):
    """See ``LakeSink``."""

    scheme = "delta"

    def __init__(self, options: DeltaOptions, schema: pa.Schema) -> None:
        super().__init__(options, schema)
        self._options = options

    def _table(self) -> DeltaLog:
        return self._options.table

    def _place(self) -> Place:
        return Place(self._options, self._options.path)
