"""A Spark sink that goes only part of the way: what each part costs is the difference to the next.

Stages: ``take`` (batches are handed over from the JVM and dropped), ``encode`` (and checked and encoded
by our encoder), ``commit`` (and sent by our COPY on a kept connection, with COMMIT at the end of the
task). The last one is the at-least-once job: no register, no marker, no decision; a retried task or a
replayed epoch writes its rows twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from abs_clients.postgres.pool import leased
from abs_sinks.postgres import PostgresOptions
from abs_sinks.postgres.apply.target import resolve
from abs_sinks.postgres.copyin import CopyIn
from abs_spark.schema import arrow_schema, to_target_schema

Batches = Iterator[pa.RecordBatch]


class StageSource(DataSource):
    """Options: ``stage``, and those of ``abs-postgres``."""

    @classmethod
    def name(cls) -> str:
        return "bench-stage"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StageWriter:  # noqa: N802
        given = dict(self.options)
        stage = given.pop("stage")
        return StageWriter(stage, PostgresOptions.parse(given), arrow_schema(schema))


@dataclass
class StageWriter(DataSourceStreamArrowWriter):
    """Takes a task's batches as far as its stage goes; its commit and abort do nothing."""

    stage: str
    options: PostgresOptions
    schema: pa.Schema

    def write(self, iterator: Batches) -> WriterCommitMessage:
        _STAGES[self.stage](self, iterator)
        return WriterCommitMessage()

    def take(self, batches: Batches) -> None:
        """The rows arrive as Arrow batches, and that is all."""
        for _ in batches:
            pass

    def encode(self, batches: Batches) -> None:
        """The bytes of the COPY are made, and dropped."""
        encoder = resolve(self.options, self.schema).plan.encoder()
        encoder.header()
        for batch in batches:
            encoder.encode(to_target_schema(batch, self.schema))
        encoder.finish()

    def commit_task(self, batches: Batches) -> None:
        """The rows are in the table, visible, when the task ends: at least once."""
        plan = resolve(self.options, self.schema).plan
        with leased(self.options.server) as connection, connection.transaction():
            copy = CopyIn(connection, plan, self.options)
            for batch in batches:
                copy.write(to_target_schema(batch, self.schema))
            copy.finish()


_STAGES: dict[str, Callable[[StageWriter, Batches], None]] = {
    "take": StageWriter.take,
    "encode": StageWriter.encode,
    "commit": StageWriter.commit_task,
}
