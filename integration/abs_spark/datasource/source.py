"""Base class of the formats that Spark can write."""

from __future__ import annotations

import secrets
from collections.abc import MutableMapping
from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from abs_core.coordinator import NOTHING_BEGUN
from abs_core.errors import OptionError
from abs_core.model import job_key
from abs_sinks.door import Options, SinkFormat
from abs_sinks.options import ToSink, not_alone
from abs_spark.checkpoint.certificates import CheckpointCertificates, location
from abs_spark.checkpoint.spark_files import is_readable, query_id, with_checkpoint
from abs_spark.datasource.batch import BatchWriter
from abs_spark.datasource.stream import StreamWriter
from abs_spark.names import Announced, RunName
from abs_spark.process.driver import driver_id
from abs_spark.process.gc_tuning import tune_gc
from abs_spark.process.logs import show_logs
from abs_spark.run import begun
from abs_spark.schema import input_schema
from abs_spark.sink_spec import SinkSpec, parse
from abs_spark.start import announce


class AbsDataSource(DataSource):
    """A sink as Spark sees it.

    Args:
        format: the sink's; None: a subclass names it, which must be importable on executors.
    """

    format: SinkFormat
    query_start: str | None = None
    """Names a start of the query in the commit process; None in the planner."""

    def __init__(
        self,
        options: MutableMapping[str, str],
        format: SinkFormat | None = None,  # noqa: A002 - Spark's word for it
    ) -> None:
        super().__init__(options)
        if format is not None:
            self.format = format

    def __getstate__(self) -> dict[str, Any]:
        # Spark pickles one instance per start of a query, and sends it to the commit process for
        # every epoch; the planner makes a new one per epoch.
        return {**self.__dict__, "query_start": secrets.token_hex(8)}

    @classmethod
    def name(cls) -> str:
        return cls.format.name

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        """Called per epoch by the planner, and per epoch by the commit process.

        Raises:
            OptionError, SchemaError, PreflightError, TargetError: before anything is written.
        """
        target = self._target(schema)
        common = target.options.common
        if overwrite:
            raise OptionError(
                f"{self.format.name}: outputMode complete would replace the whole table at every "
                "epoch; this sink only adds rows, or upserts them.",
                remedy="use outputMode append (an aggregation needs a watermark then); or, to "
                "keep running totals, write through abs_spark.epoch in foreachBatch, with "
                "write=upsert and key.",
            )
        check_of_stream(self.format.name, target.options)
        announced, origin, place, readable = Announced(), NOTHING_BEGUN, None, True
        if self.query_start is None:
            patience = with_checkpoint(target.options.patience)
            origin = patience.retry(CheckpointCertificates(common.checkpoint).read)
            place = location(common.checkpoint)
            readable = is_readable(common.checkpoint)
            job = common.job or query_id(common.checkpoint)
            announced = announce(target, None if job is None else job_key(job))
            tune_gc()
        return StreamWriter(
            target,
            query_start=self.query_start or "",
            driver=driver_id(),
            announced=announced,
            origin=origin,
            location=place,
            readable=readable,
        )

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Called once per ``save()``, by the planner.

        Raises:
            OptionError, SchemaError, PreflightError, TargetError: before anything is written.
        """
        target = self._target(schema)
        common = target.options.common
        if overwrite:
            raise OptionError(
                f"{self.format.name}: mode overwrite would drop what other jobs and epochs wrote; it "
                "cannot be done exactly once.",
                remedy="use mode('append'); to replace rows use write=upsert, to replace all "
                "truncate the target first.",
            )
        missing = [n for n, v in (("job", common.job), ("epoch", common.epoch)) if v is None]
        if missing:
            raise OptionError(
                f"{self.format.name}: a batch write needs the options job and epoch; missing: "
                f"{' and '.join(missing)}.",
                remedy="job is a stable name of what runs, epoch names this batch (a date, say): "
                "written again under the same two names, it changes nothing.",
            )
        key = job_key(str(common.job), common.epoch)
        name = RunName(key, f"batch:{key}", secrets.token_hex(16))
        announced = announce(target, key)
        return BatchWriter(target, name, announced, begun(target, key))

    def _target(self, schema: StructType) -> SinkSpec:
        show_logs()
        options = parse(self.format, dict(self.options))
        if isinstance(place := getattr(options, "deadletter", None), ToSink):
            raise not_alone(place)
        return SinkSpec(self.format, options, input_schema(schema))


def check_of_stream(name: str, options: Options) -> None:
    """Raise OptionError for options that only a batch write can have."""
    if options.common.epoch is not None:
        raise OptionError(
            f"{name}: the option epoch names a batch write; a stream counts its own.",
            remedy="leave it out.",
        )
    if options.common.replay == "token":
        raise OptionError(
            f"{name}: replay=token trusts the option epoch of a batch write; a stream has none.",
            remedy="leave it out, or use replay=count.",
        )
