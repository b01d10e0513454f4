"""Our Kafka sink at its at-least-once worth: what exactly once costs is the difference to it.

The same columns, checks, digest, encoder and producer settings; but the producer is idempotent only,
and kept open over all epochs of a process: no transaction, no register, no decision. A retried task or
a replayed epoch writes its rows twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from abs_sinks.kafka import KafkaOptions
from abs_sinks.kafka.records import plan_columns, records_of
from abs_sinks.kafka.sending import RecordSender, outside_transactions
from abs_sinks.kafka.writer import RecordChecks
from abs_spark.gc_tuning import tune_gc
from abs_spark.schema import arrow_schema, conform

_kept: dict[KafkaOptions, RecordSender] = {}


class KafkaStage(DataSource):
    """Options: those of ``abs-kafka``."""

    @classmethod
    def name(cls) -> str:
        return "bench-kafka"

    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkaStageWriter:  # noqa: N802
        return KafkaStageWriter(KafkaOptions.parse(dict(self.options)), arrow_schema(schema))


@dataclass
class KafkaStageWriter(DataSourceStreamArrowWriter):
    """Sends a task's records and flushes; its commit commits nothing."""

    options: KafkaOptions
    schema: pa.Schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        columns, rows = plan_columns(self.schema, self.options.topic), 0
        checks = RecordChecks(self.options, self.options.patience)
        sender = _sender(self.options)
        for batch in iterator:
            records = records_of(conform(batch, self.schema), columns, rows)
            checks.check(records, rows)
            sender.send(records)
            rows += records.rows
        sender.flush()
        tune_gc()
        return WriterCommitMessage()

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        tune_gc()  # as ours does: PySpark's garbage collection is no part of what exactly once costs


def _sender(options: KafkaOptions) -> RecordSender:
    if options not in _kept:
        _kept.clear()  # of a topic before
        _kept[options] = outside_transactions(options, [])
    return _kept[options]
