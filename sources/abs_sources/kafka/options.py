"""The options of the source ``abs-kafka``, parsed into one typed value. The names are Spark's."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

import pyarrow as pa

from abs_clients.avro.settings import RegistrySettings, check_formats
from abs_clients.kafka.configs import consumer_settings
from abs_clients.kafka.setting_rules import SOURCE
from abs_clients.kafka.settings import PREFIX, Settings
from abs_clients.options import (
    Option,
    Problems,
    boolean,
    described,
    duration,
    fields_from,
    one_of,
    options_of,
    read_options,
    whole_number,
)
from abs_core.patience import DEFAULT_SECONDS, Patience
from abs_core.source import Limit
from abs_sources.kafka import decoding
from abs_sources.kafka.bounds import (
    EARLIEST,
    LATEST,
    Bound,
    a_start,
    assigned,
    end_offset,
    record_places,
    times,
    timestamp,
)
from abs_sources.kafka.bounds import names as topic_names
from abs_sources.kafka.columns import SCHEMA, SCHEMA_WITH_HEADERS
from abs_sources.kafka.formats import Formats, check_topics, topics_of
from abs_sources.kafka.offsets import Partition

NAME = "abs-kafka"
log = logging.getLogger("abs_sources.kafka")

_OWN = {
    "enable.auto.offset.store": False,
    # A place that is gone is an error to decide about, never a reason to begin elsewhere.
    "auto.offset.reset": "error",
}
_DEFAULTS = {
    "group.id": "abs-sources",
    # Otherwise librdkafka hands out the bytes of a damaged batch as if they were right.
    "check.crcs": True,
    "isolation.level": "read_committed",
    # The default, 1000 ms, lets a fast reader wait most of the time once its queue was full.
    "fetch.queue.backoff.ms": 5,
    "fetch.wait.max.ms": 100,
    "queued.max.messages.kbytes": 32_768,
}

_SHAPING = ("includeHeaders", "value", "key", "registry", "subscribe", "assign", "patience")
"""The first words of the options that the columns follow from."""

_COUNT = whole_number(1, 2**62)

HEADERS = Option("includeHeaders", boolean, False)


def _pattern(text: str) -> str:
    try:
        with warnings.catch_warnings():
            # Python warns of "[[", which a later release may read as a nested set; today it is "[".
            warnings.simplefilter("ignore", FutureWarning)
            re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"a regular expression ({error})") from error
    return text


_STARTS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
"""Of each of them the first that is given counts, as in Spark."""

_ELSEWHERE = {
    "minOffsetsPerTrigger": "use a longer processingTime trigger: an epoch takes all existing "
    "records.",
    "maxTriggerDelay": "use a longer processingTime trigger.",
    "groupIdPrefix": "leave it out: the source joins no group, and needs no ACL on one.",
    "fetchOffset.numRetries": "leave it out: requests for offsets are repeated until a deadline.",
    "fetchOffset.retryIntervalMs": "leave it out: requests for offsets are repeated until a "
    "deadline.",
    "kafkaConsumer.pollTimeoutMs": "leave it out: the source waits for every record of a range.",
    "topic": "a source has subscribe, assign or subscribePattern; topic is the sink's.",
    "path": "use subscribe, assign or subscribePattern.",
}


@described
@dataclass(frozen=True, slots=True)
class KafkaSourceOptions:
    """The parsed options. Its ``repr`` shows no secret (I9).

    Exactly one of ``subscribe``, ``assign`` and ``pattern`` is set.

    Args:
        client: librdkafka's settings from ``kafka.*``.
        start: where a job without offsets begins.
        end: where a batch read ends; None: at the end at planning time.
        without_time: what ``startingTimestamp`` finds after the last record; None: an error.
        formats: of key and value.
    """

    client: Settings
    subscribe: Annotated[
        tuple[str, ...] | None,
        topic_names,
        "topics; exactly one of `subscribe`, `assign` and `subscribePattern` is needed",
    ] = None
    assign: Annotated[
        tuple[Partition, ...] | None, assigned, "partitions, as JSON: topic to partitions"
    ] = None
    pattern: Annotated[
        str | None,
        Option("subscribePattern", _pattern),
        "matches whole names of topics, never internal topics or side topics",
    ] = None
    start: Bound = field(default_factory=lambda: Bound(everywhere=LATEST))
    end: Bound | None = None
    without_time: int | None = None
    most_offsets: Annotated[
        int | None,
        Option("maxOffsetsPerTrigger", _COUNT),
        "limit of an epoch, divided in proportion to the lag of the partitions, one "
        "offset for each at least (if there are more partitions, they take turns); Spark "
        "4.2 or newer",
    ] = None
    min_partitions: Annotated[
        int | None,
        Option("minPartitions", whole_number(1, 1_000_000)),
        "the least number of tasks; ranges are divided",
    ] = None
    most_records: Annotated[
        int | None,
        Option("maxRecordsPerPartition", _COUNT),
        "the most records of a task; ranges are divided",
    ] = None
    fail_on_data_loss: Annotated[
        bool, Option("failOnDataLoss", boolean, True), "whether the query stops if records are gone"
    ] = True
    skipped: Annotated[
        frozenset[tuple[str, int, int]],
        Option("skipOffsets", record_places, frozenset()),
        "records that are left out, for good, as JSON: topic to partition to offsets; for those that "
        "an error names as unreadable",
    ] = frozenset()
    headers: Annotated[bool, HEADERS, "whether rows have a column `headers`"] = False
    winners: Annotated[
        bool | None,
        boolean,
        "whether side topics are read; see [topics that `protocol=idempotent` "
        "wrote](kafka-source.md#topics-that-protocolidempotent-wrote)",
    ] = None
    batchsize: Annotated[
        int,
        whole_number(1, 10_000_000),
        "rows of an Arrow batch, at most; large records make smaller batches",
    ] = 10_000
    waits: Annotated[
        float,
        Option("patience", duration(1.0, 86_400.0), DEFAULT_SECONDS),
        "how long to wait for brokers that do not answer, and for the next record of a "
        "range: like the sinks' `patience`",
    ] = DEFAULT_SECONDS
    formats: Formats = field(default_factory=Formats)

    @property
    def patience(self) -> Patience:
        """With the brokers."""
        return Patience(self.waits, system=f"Kafka at {self.client.bootstrap}")

    @property
    def limit(self) -> Limit:
        """``most_offsets`` as the core's type."""
        return Limit(rows=self.most_offsets)

    @property
    def consumer(self) -> dict[str, Any]:
        """librdkafka's configuration of the consumer that reads records."""
        return consumer_settings(self.client, _DEFAULTS, _OWN)

    @classmethod
    def parse(cls, options: Mapping[str, str], *, batch: bool = False) -> Self:
        """Parse Spark's options: text to text, case-insensitive names.

        A batch read starts with ``earliest`` and has an end; a stream starts with ``latest`` and
        has none. Raises OptionError with all unknown, missing, malformed and contradictory options
        at once.
        """
        problems = Problems(NAME)
        values = read_options(options, OPTIONS, problems, elsewhere=_ELSEWHERE, prefix=PREFIX)
        client = Settings.read(options, problems, SOURCE)
        _check_together(options, values, problems, batch=batch)
        check_formats(values, problems)
        check_topics(values, problems)
        problems.raise_any()
        start = _first(values, _STARTS)
        strategy = values["startingOffsetsByTimestampStrategy"]
        read = fields_from(cls, values)
        if batch:
            read["most_offsets"] = None
        return cls(
            client,
            **read,
            start=start or Bound(everywhere=EARLIEST if batch else LATEST),
            end=_first(values, _ENDS),
            without_time=LATEST if strategy == "latest" else None,
            formats=Formats.of(values, values["patience"]),
        )


OPTIONS = (
    *options_of(KafkaSourceOptions),
    *options_of(Formats),
    *options_of(RegistrySettings),
    Option(
        "startingOffsets",
        a_start,
        doc="`earliest`, `latest`, or JSON per partition (-2 earliest, -1 latest); by "
        "default `latest` in a stream, `earliest` in a batch",
    ),
    Option("startingTimestamp", timestamp, doc="milliseconds; takes precedence over the offsets"),
    Option(
        "startingOffsetsByTimestamp",
        times,
        doc="milliseconds per partition, as JSON; takes precedence over the offsets",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        one_of("error", "latest"),
        "error",
        doc="`error` or `latest`, if no record is late enough",
    ),
    Option("endingOffsets", end_offset, doc="batch only: `latest` (default) or JSON per partition"),
    Option("endingTimestamp", timestamp, doc="batch only: milliseconds"),
    Option(
        "endingOffsetsByTimestamp", times, doc="batch only: milliseconds per partition, as JSON"
    ),
)


def read_schema(options: Mapping[str, str]) -> pa.Schema:
    """The columns, before all options are parsed; asks the registry for those that are decoded.

    Raises:
        OptionError: what the columns follow from is malformed.
        SchemaError, TargetError: as ``decoding.read_schema``.
    """
    problems = Problems(NAME)
    shaping = [option for option in OPTIONS if option.name.partition(".")[0] in _SHAPING]
    names = {option.name.lower() for option in shaping}
    mine = {name: text for name, text in options.items() if name.lower() in names}
    values = read_options(mine, shaping, problems)
    check_formats(values, problems)
    problems.raise_any()
    raw = SCHEMA_WITH_HEADERS if values["includeHeaders"] else SCHEMA
    formats = Formats.of(values, values["patience"])
    if formats.columns:
        check_topics(values, problems)
        problems.raise_any()
    return decoding.read_schema(decoding.with_pins(formats, topics_of(values)), raw)


def _first(values: Mapping[str, Any], names: tuple[str, ...]) -> Bound | None:
    return next((values[name] for name in names if values[name] is not None), None)


def _check_together(
    options: Mapping[str, str], values: Mapping[str, Any], problems: Problems, *, batch: bool
) -> None:
    there = {name.lower() for name in options}  # a malformed one is told of, and has no value
    ways = [n for n in ("subscribe", "assign", "subscribePattern") if n.lower() in there]
    if len(ways) != 1:
        problems.add(
            "Exactly one of subscribe, assign and subscribePattern must be given, not "
            f"{' and '.join(ways) or 'none'}.",
            "give one of them: subscribe=topic, for instance.",
        )
    ends = [name for name in _ENDS if values[name] is not None]
    if ends and not batch:
        problems.add(
            f"A stream has no end: {' and '.join(ends)}.",
            "leave it out; trigger(availableNow=True) stops when all existing records are read.",
        )
    start: Bound | None = _first(values, _STARTS)
    if batch and start is not None and _means_latest(start):
        problems.add(
            "startingOffsets of a batch read is latest: nothing would be read.",
            "leave it out (earliest), or name offsets.",
        )


def _means_latest(start: Bound) -> bool:
    return start.everywhere == LATEST or LATEST in start.offsets.values()
