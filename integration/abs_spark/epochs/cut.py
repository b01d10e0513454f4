"""Reads the targets of a job as of one epoch, and waits for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from abs_core.contracts import Inventory
from abs_core.errors import ConfigError, IdentityError, JobGoneError, NotYetError, OptionError
from abs_core.model import job_key
from abs_core.sinkmap import check_names
from abs_sinks.asof import Reading
from abs_sinks.door import format_named
from abs_spark.epochs.record import At, Epoch, epochs_of
from abs_spark.epochs.waiting import TIMEOUT_SECONDS, Wanted, wait_for
from abs_spark.foreach.spec import EpochSink
from abs_spark.schema import arrow_schema, spark_schema, to_spark_schema
from abs_spark.sink_spec import parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Sinks = EpochSink | Sequence[EpochSink]

_BEGIN, _MILLISECOND = datetime.fromtimestamp(0, UTC), timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Cut:
    """A job's targets at the end of one epoch; see ``abs_spark.cut``, which makes one.

    It stays what it is while the job goes on. Targets keep their past for a time only: snapshots
    expire, logs are cleaned, and topics have a retention.

    Args:
        epoch: its number.
        finished: when it was finished in all targets; None: unknown.
    """

    job: str
    epoch: int
    finished: datetime | None
    _sinks: Mapping[str, EpochSink]
    _targets: Mapping[str, At]

    def read(self, spark: SparkSession, sink: str = "", **options: Any) -> DataFrame:
        """The rows of a sink's target up to the epoch.

        Tables of the lake are read by the libraries that the sinks use, in one task, so Spark needs no
        other library; ``options`` is for Spark's own readers. Topics have the columns of
        ``spark.read.format("abs-kafka")``.

        Args:
            sink: its name; may be left out if the job has one.
            options: more options of the reader.

        Raises:
            ConfigError: the target has no past, or the register does not tell it.
            RefusedError: that state of the target is gone.
        """
        reading = self._reading(sink)
        if reading.rows is not None:
            if options:
                raise OptionError(
                    f"The rows of {self._name(sink)} are read without options.",
                    remedy="leave them out; or give them to Spark's own reader, with .options(...).",
                )
            return _rows(spark, reading.rows)
        if find_spec("pyspark.sql.datasource") is None:
            raise ConfigError(
                f"The format {reading.format} needs PySpark 4.1 or newer.",
                remedy="read by Spark's own reader, with the options of .options(...).",
            )
        all_options = {
            **self.options(sink),
            **{name: str(value) for name, value in options.items()},
        }
        return spark.read.format(reading.format).options(**all_options).load()

    def options(self, sink: str = "") -> dict[str, str]:
        """Options with which Spark's own reader stops at the epoch; they may hold secrets.

        Raises:
            ConfigError: as ``read``.
        """
        reading = self._reading(sink)
        own = self._sinks[self._name(sink)].options if reading.as_sink else {}
        return {**own, **reading.options}

    def told(self, sink: str = "") -> dict[str, Any]:
        """The same for other readers, as ``abs epochs --json`` has it; no secret."""
        return dict(self._targets[self._name(sink)].as_of().told)

    def _reading(self, sink: str) -> Reading:
        name = self._name(sink)
        # Looked at again: versions of a table that was made anew since are not those of this one.
        _check_target(name, self._sinks[name], self._targets[name], self.job, self.epoch)
        place = self._targets[name].as_of(_parsed(self._sinks[name]))
        if place.reading is None:
            raise ConfigError(
                f"The target of {name or 'the sink'} cannot be read as of an epoch. {place.unreadable}",
                job=self.job,
                epoch=self.epoch,
                remedy="read its present state, after abs_spark.wait(...); or cut at another epoch.",
            )
        return place.reading

    def _name(self, sink: str) -> str:
        if not sink and len(self._sinks) == 1:
            return next(iter(self._sinks))
        if sink not in self._sinks:
            raise OptionError(
                f"There is no sink {sink!r} in this cut.",
                remedy=f"name one of {', '.join(self._sinks)}.",
            )
        return sink


def cut(sinks: Sinks, *, job: str, register: str | None = None, epoch: int | None = None) -> Cut:
    """The targets of a job at the end of one epoch: the same rows in each, while the job goes on.

    The register tells the last ``MAX_RECENT`` epochs.

    Args:
        sinks: as for ``abs_spark.epoch``; for a job of one format, ``abs_spark.sink`` of its options.
        job: as for ``abs_spark.epoch``, or the option ``job``.
        register: name of the sink whose system has the job's register; default: the first one.
        epoch: default: the last one that is finished in all targets.

    Raises:
        NotYetError: the epoch is not finished in all targets.
        JobGoneError: the job has no register there.
        ConfigError: the epoch is too old.
        IdentityError: a sink is not the job's, or has another target.
    """
    named = _named(sinks)
    stored = _register(named, register).load(job_key(job))
    if stored is None:
        raise _gone(job)
    recorded = [entry for entry in epochs_of(stored.state) if entry.finished]
    last = stored.state.frontier
    wanted = last if epoch is None else epoch
    if wanted is None or last is None or wanted > last:
        done = "no epoch is" if last is None else f"epoch {last} is the last that is"
        raise NotYetError(
            f"The epoch is not finished in all targets: {done}.",
            job=job,
            epoch=wanted,
            remedy="wait for it with abs_spark.wait(...).",
        )
    record = next((entry for entry in recorded if entry.number == wanted), None)
    if record is None:
        span = f"epochs {recorded[0].number} to {last}" if recorded else "no epoch"
        raise ConfigError(
            f"The register does not tell where epoch {wanted} is: it records {span}.",
            job=job,
            epoch=wanted,
            remedy="cut at one of them.",
        )
    at = record.course.finished
    moment = None if at is None else datetime.fromtimestamp(at / 1000, UTC)
    return Cut(stored.state.job, wanted, moment, named, _targets(named, record, job))


def wait(
    sinks: Sinks,
    *,
    job: str,
    register: str | None = None,
    epoch: int | None = None,
    after: datetime | None = None,
    timeout: float = TIMEOUT_SECONDS,
) -> int:
    """Wait until an epoch is finished in all targets, and return its number.

    Args:
        sinks, job, register: as for ``cut``; only the register's sink is needed.
        epoch: its number. Without ``epoch`` and ``after``: the one that is decided last now.
        after: the first epoch for which Spark asked its sources at this time or later. What is written
            to a source in the moment in which Spark asks may be left to the next epoch; of a query with
            a limit for each batch, or with ``availableNow``, more may be.
        timeout: in seconds; 0: look once.

    Raises:
        NotYetError: it is not finished in time.
        JobGoneError: the job has no register there, or began to count its epochs anew.
        OptionError: both are given, or the time has no zone.
        UnavailableError: the register does not answer at the end of the time.
    """
    load = _register(_named(sinks), register).load
    key = job_key(job)
    return wait_for(lambda: load(key), key, wanted_of(epoch, after), timeout)


def wanted_of(epoch: int | None, after: datetime | None) -> Wanted:
    """Which epoch; raises OptionError."""
    if epoch is not None and after is not None:
        raise OptionError("Both an epoch and a time are given.", remedy="give one of them.")
    if after is not None and after.tzinfo is None:
        raise OptionError(f"The time {after} has no zone.", remedy="add one, such as Z for UTC.")
    if epoch is not None and epoch < 0:
        raise OptionError(f"There is no epoch {epoch}.", remedy="epochs count from 0.")
    # The next whole millisecond: an epoch of the one that the time lies in may be older than it.
    return Wanted(epoch, None if after is None else -((_BEGIN - after) // _MILLISECOND))


def _named(sinks: Sinks) -> dict[str, EpochSink]:
    several = (sinks,) if isinstance(sinks, EpochSink) else tuple(sinks)
    check_names([sink.name for sink in several])
    return {sink.name: sink for sink in several}


def _register(sinks: Mapping[str, EpochSink], register: str | None) -> Inventory:
    name = next(iter(sinks)) if register is None else register
    if name not in sinks:
        raise OptionError(
            f"register={name!r} is not one of the sinks.",
            remedy=f"name one of {', '.join(filter(None, sinks)) or 'its sinks'}.",
        )
    return format_named(sinks[name].format).administer(_parsed(sinks[name]))[0]


def _parsed(sink: EpochSink) -> Any:
    # The place of the log follows from the job's checkpoint, which no reader needs.
    return parse(
        format_named(sink.format), {**sink.options, "checkpointLocation": "/"}, started=False
    )


def _targets(sinks: Mapping[str, EpochSink], epoch: Epoch, job: str) -> dict[str, At]:
    """The target of each sink; raises IdentityError."""
    there = {at.sink.name: at for at in epoch.targets}
    if len(sinks) == 1 and list(there) == [""]:
        there = {next(iter(sinks)): there[""]}
    places = {}
    for name, sink in sinks.items():
        if name not in there:
            raise IdentityError(
                f"The job has no sink {name!r} in that epoch.",
                job=job,
                epoch=epoch.number,
                remedy=f"give the job's sinks: {', '.join(filter(None, there)) or 'it has one'}.",
            )
        _check_target(name, sink, there[name], job, epoch.number)
        places[name] = there[name]
    return places


def _check_target(name: str, sink: EpochSink, at: At, job: str, epoch: int) -> None:
    target = format_named(sink.format).identity(_parsed(sink))
    if at.sink.target != target:
        raise IdentityError(
            f"The sink {name!r} is {target}, and the job has {at.sink.target} in that epoch.",
            job=job,
            epoch=epoch,
            remedy="give the options of the job's sink; of a target that was made anew since, read its "
            "present state.",
        )


def _gone(job: str) -> JobGoneError:
    return JobGoneError(
        "The job has no register there.",
        job=job,
        remedy="see `abs register list` for its name; a job has a register from its first epoch.",
    )


def _rows(spark: SparkSession, rows: Callable[[], pa.RecordBatchReader]) -> DataFrame:
    with rows() as reader:
        schema = spark_schema(reader.schema)
    rows_schema = arrow_schema(schema)

    def read(once: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in once:
            with rows() as reader:
                for batch in reader:
                    yield to_spark_schema(batch, rows_schema)

    return spark.range(0, 1, 1, 1).mapInArrow(read, schema)
