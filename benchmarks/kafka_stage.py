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

from abs_core.contracts import Task
from abs_core.model import Committable
from abs_sinks.kafka import KafkaOptions
from abs_sinks.kafka.records import Records
from abs_sinks.kafka.sending import RecordSender, outside_transactions
from abs_sinks.kafka.writer import RecordWriter
from abs_spark.process.gc_tuning import tune_gc
from abs_spark.schema import arrow_schema, to_target_schema

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
        writer = KeptWriter(self.options, self.schema)
        for batch in iterator:
            writer.write(to_target_schema(batch, self.schema))
        writer.pre_commit()
        tune_gc()
        return WriterCommitMessage()

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        tune_gc()  # as ours does: PySpark's garbage collection is no part of what exactly once costs


class KeptWriter(RecordWriter):
    """Sends by the process's sender."""

    def __init__(self, options: KafkaOptions, schema: pa.Schema) -> None:
        super().__init__(options, schema, Task("0" * 16, "bench", 1, 0, 0, "ab"))
        self._sender = _sender(options)

    def abort(self) -> None:
        self._sender.abort()

    def _keep_checked(self, batch: pa.RecordBatch | None, checked: Records) -> None:
        self._sender.send(checked)

    def _complete(self) -> None:
        self._sender.flush()

    def _prepared(self) -> Committable:
        return Committable(self._task.handle, self._rows, "")


def _sender(options: KafkaOptions) -> RecordSender:
    if options not in _kept:
        _kept.clear()  # of a topic before
        _kept[options] = outside_transactions(options, [])
    return _kept[options]
