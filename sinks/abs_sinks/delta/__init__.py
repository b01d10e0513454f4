"""The sink for Delta tables: each epoch appears in one version of the table, exactly once."""

from typing import TYPE_CHECKING

from abs_sinks import face

if TYPE_CHECKING:
    from abs_sinks.delta.sink import DeltaOptions, DeltaSink

__all__ = ["DeltaOptions", "DeltaSink"]

__getattr__ = face(__name__, DeltaOptions="sink", DeltaSink="sink")
