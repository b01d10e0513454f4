"""The sink for Iceberg tables: each epoch appears in one snapshot of the table, exactly once."""

from typing import TYPE_CHECKING

from abs_sinks import face

if TYPE_CHECKING:
    from abs_sinks.iceberg.sink import IcebergOptions, IcebergSink

__all__ = ["IcebergOptions", "IcebergSink"]

__getattr__ = face(__name__, IcebergOptions="sink", IcebergSink="sink")
