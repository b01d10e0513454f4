"""The sink for an Iceberg table."""

from __future__ import annotations

from types import MappingProxyType

import pyarrow as pa

from abs_sinks.lake.sink import LakeSink


class IcebergSink(LakeSink):
    """See ``LakeSink``. Data files have the partition columns, too; integers have 32 bits or more."""

    scheme = "iceberg"
    keeps_partitions = True
    widened = MappingProxyType({pa.int8(): pa.int32(), pa.int16(): pa.int32()})
