"""The sinks that jobs are given: Spark's own, and ours."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.jobs import Attach


def nothing(writer: DataStreamWriter) -> DataStreamWriter:
    """Spark's ``noop`` sink: the rows are read, and stay in the JVM."""
    return writer.format("noop")


def jdbc(options: Mapping[str, str], *, rewrite: bool) -> Attach:
    """Spark's JDBC writer in foreachBatch. It promises less: a replayed batch is written twice.

    Args:
        rewrite: the driver's ``reWriteBatchedInserts``: many rows in one INSERT.
    """
    given = {**options, **({"reWriteBatchedInserts": "true"} if rewrite else {})}

    def write(batch: DataFrame, epoch: int) -> None:
        batch.write.format("jdbc").options(**given).mode("append").save()

    return lambda writer: writer.foreachBatch(write)


def stage(name: str, options: Mapping[str, str]) -> Attach:
    """One of the partial sinks of :mod:`benchmarks.stages`."""
    return lambda writer: writer.format("bench-stage").options(stage=name, **options)


def ours(options: Mapping[str, str], protocol: str) -> Attach:
    """The sink ``abs-postgres``."""
    return lambda writer: writer.format("abs-postgres").options(protocol=protocol, **options)
