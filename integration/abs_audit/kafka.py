"""A Kafka topic as a relation, read by kafka-python's consumer.

The sinks encode their records with code of their own or with librdkafka, so what the audit decodes was
written by another implementation. The default sender shares kafka-python's network layer with it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pyarrow as pa
from duckdb import DuckDBPyConnection, DuckDBPyRelation
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import (
    AuthorizationError,
    CorruptRecordError,
    KafkaError,
    SaslAuthenticationFailedError,
    UnsupportedCodecError,
)

from abs_audit.carry import carried
from abs_audit.contracts import Relation, Side
from abs_audit.families import Type
from abs_audit.kafka_values import AvroValues, JsonValues, RawValues, Values
from abs_audit.locate import without_table
from abs_audit.progress import streamed
from abs_audit.report import LeftBehind, Pending
from abs_clients.avro.settings import RegistrySettings
from abs_clients.kafka.attempts import HEADER, Winners, refuse_attempts, side_topic
from abs_clients.kafka.auth_check import check_access
from abs_clients.kafka.configs import access_settings
from abs_clients.kafka.private import connections
from abs_clients.kafka.settings import from_file, lines_of
from abs_clients.options import Problems, options_of, read_options
from abs_core.errors import (
    AbsError,
    ConfigError,
    DataError,
    OptionError,
    RefusedError,
    UnavailableError,
)
from abs_core.model import HandleName
from abs_sinks.deadletters.place import KeptLetters
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.urls import parts_of


@dataclass(slots=True)
class WinnersFilter:
    """The records that a reader with ``winners=true`` gets from a topic of ``protocol=idempotent``.

    Drops the losers' records, and in each partition everything after an undecided one. The rule is
    ``abs_clients.kafka.attempts``, as for every reader; the client is the audit's own.
    """

    winners: Winners
    _waiting: dict[int, tuple[int, HandleName]] = field(default_factory=dict)

    def counted(self, partition: int, records: Sequence[Any]) -> list[Any]:
        """The records that count, of a partition's next records in offset order.

        Raises CorruptionError if a winners record that is needed was deleted.
        """
        if partition in self._waiting:
            return []
        filtered = self.winners.filter(pa.array(map(attempt_header, records), pa.binary()))
        if filtered.undecided is not None:
            self._waiting[partition] = records[filtered.stop].offset, filtered.undecided
        return list(compress(records[: filtered.stop], filtered.keep.to_pylist()))

    def pending(self) -> Iterable[Pending]:
        """The positions at which readers wait, by the records read so far."""
        for partition, (offset, attempt) in sorted(self._waiting.items()):
            yield Pending(
                f"partition {partition}: readers with winners=true wait at offset {offset}: attempt "
                f"{attempt} is not decided"
            )


def attempt_header(record: Any) -> bytes | None:
    """The value of the record's header that names its attempt."""
    return dict(record.headers).get(HEADER)


POLL_RECORDS = 10_000

SILENCE_SECONDS = 30.0
"""A broker that sends nothing for so long, short of the end, counts as gone."""

NEW_TOPIC_SECONDS = 5.0
"""For so long a topic that was just made may be unknown to the broker that is asked."""

NEW_TOPIC_PAUSE = 0.2


class KafkaSide(Side):
    """See ``Side``."""

    def at(self, url: str, table: str | None, null: str | None, stateschema: str) -> KafkaTopic:
        without_table(table)
        parts = parts_of(url)
        servers, topic = parts.netloc, parts.path.strip("/")
        query = dict(parse_qsl(parts.query))
        value, config = query.pop("value", "json"), query.pop("config", None)
        winners = query.pop("winners", None)
        if "@" in servers:
            raise OptionError("A topic's URL cannot contain credentials.", remedy="remove them.")
        if query or value not in ("json", "raw", "avro") or winners not in (None, "true", "false"):
            raise OptionError(
                "A topic's URL has ?value=json, raw or avro, winners=true or false, and config=FILE"
                f"{', and no ' + ', '.join(sorted(query)) if query else ''}.",
                remedy="set value=raw if the values are not JSON objects, winners if "
                "protocol=idempotent wrote the topic, and config to a file with the client's settings.",
            )
        if not servers or not topic or "/" in topic:
            raise OptionError(
                "This is not the URL of a topic.", remedy="write kafka://host:port/topic."
            )
        counted = None if winners is None else winners == "true"
        avro = _registry(config) if value == "avro" else None
        return KafkaTopic(
            servers, topic, value, winners=counted, settings=_client(servers, config), avro=avro
        )

    def letters(
        self, url: str, deadletter: str, table: str | None, stateschema: str
    ) -> tuple[KeptLetters | None, Callable[[str], bool]]:
        """See ``Side``. The query of a topic's URL has words of the audit's own."""
        parts = parts_of(url)
        config = dict(parse_qsl(parts.query)).get("config")
        plain = f"{parts.scheme}://{parts.netloc}" + (f"?config={config}" if config else "")
        topic = parts.path.strip("/")
        return self._kept(plain, deadletter, topic), topic.__eq__

    def refused_by(self, options: KafkaOptions) -> Callable[[str], bool]:
        """See ``Side``."""
        return (options.topic or "*").__eq__

    def of(self, options: KafkaOptions) -> KafkaTopic:
        if options.topic is None:
            raise ConfigError(
                "A column names the topics that the sink writes to.",
                remedy="audit each topic with `abs audit --actual kafka://host:port/topic`.",
            )
        settings = access_settings(options.kafka)
        return KafkaTopic(options.kafka.bootstrap, options.topic, settings=settings)


def _registry(config: str | None) -> RegistrySettings:
    """The registry of the lines ``registry.*`` in a file of settings."""
    lines = {} if config is None else lines_of(Path(config))
    options = {name: value for name, value in lines.items() if name.startswith("registry.")}
    problems = Problems(f"registry settings in {config}")
    values = read_options(options, options_of(RegistrySettings), problems)
    problems.raise_any()
    settings = RegistrySettings.of(values)
    if settings.url is None:
        raise OptionError(
            "Values in Avro need a registry, and none is named.",
            remedy="write registry.url=https://... into a file, and name it: ?value=avro&config=FILE.",
        )
    return settings


def _client(servers: str, config: str | None) -> dict[str, Any]:
    """Settings of the reading client, from a librdkafka settings file (as the sink's ``kafka.*``)."""
    if config is None:
        return {}
    settings = from_file(Path(config), servers)
    if settings.is_guarded:
        check_access(settings)
    return access_settings(settings)


@dataclass(frozen=True, slots=True)
class KafkaTopic(Relation):
    """All committed records of a topic, from its beginning to the last stable offset.

    Records are read with ``read_committed``: open and aborted transactions are not included. Order,
    timestamps, headers and partitions are not compared.

    Args:
        servers: ``host:port``, comma-separated.
        value: ``json``: each value is one object, whose fields are untyped columns; ``raw``: the
            columns ``key`` and ``value``, as bytes; ``avro``: each value is a record of the registry
            ``avro``, whose fields are columns by the newest schema of the topic's subject.
        winners: for topics of ``protocol=idempotent``: true, the records of ``winners=true``;
            false, every record; None is refused if the topic has a visible side topic.
        settings: further settings of ``kafka.KafkaConsumer``; never shown (I9).
    """

    servers: str
    topic: str
    value: str = "json"
    winners: bool | None = None
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    avro: RegistrySettings | None = None

    @property
    def name(self) -> str:
        return f"topic {self.topic} at {self.servers}"

    def columns(self, connection: DuckDBPyConnection) -> Mapping[str, Type]:
        with contextlib.closing(self._batches()) as records:
            return self._values.columns(connection, records)

    @contextlib.contextmanager
    def rows(
        self, connection: DuckDBPyConnection, names: Sequence[str]
    ) -> Iterator[DuckDBPyRelation]:
        values = self._values
        schema = values.schema(names)
        # Closed here: where a record is refused, its error's traceback keeps the generator, and with
        # it the consumer.
        with contextlib.closing(self._batches()) as read:
            batches = (values.batch(records, schema) for records in read)
            with streamed(connection, schema, batches) as rows:
                yield carried(rows, names)

    def unfolded(self, rows: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        columns = {name.lower(): rows.column(name) for name in rows.schema.names}
        return self._values.unfolded(columns, names)

    @property
    def _values(self) -> Values:
        if self.avro is not None:
            return AvroValues(self.name, self.topic, self.avro)
        return (RawValues if self.value == "raw" else JsonValues)(self.name)

    def left_behind(self) -> LeftBehind:
        """Partitions with an open transaction: their last stable offset is below their end.

        With ``winners``, also those with an undecided attempt; this reads all records.
        """
        pending = []
        with (
            self._consumer("read_uncommitted") as every,
            self._consumer("read_committed") as stable,
        ):
            partitions = self._partitions(every)
            ends, stables = every.end_offsets(partitions), stable.end_offsets(partitions)
        for partition in partitions:
            if behind := ends[partition] - stables[partition]:
                text = (
                    f"partition {partition.partition}: an open transaction holds {behind} records"
                )
                pending.append(Pending(f"{text} from offset {stables[partition]} on"))
        if self.winners:
            with self._consumer("read_committed") as consumer:
                ends = self._ends(consumer)
                counts = self._filter(consumer)
                for one, records in self._read(consumer, ends):
                    counts.counted(one.partition, records)
            pending += counts.pending()
        return LeftBehind(pending=tuple(pending))

    def _batches(self) -> Generator[list[Any]]:
        """The counted records by partition, up to the last stable offset at the start."""
        with self._consumer("read_committed") as consumer:
            ends = self._ends(consumer)
            if self.winners is None and consumer.partitions_for_topic(side_topic(self.topic)):
                raise OptionError(
                    f"{self.name} was written by protocol=idempotent: it contains the records of every "
                    "attempt, of which only one counts.",
                    remedy="set winners=true to audit what readers with winners=true get (in a URL: "
                    "?winners=true); winners=false audits all records.",
                )
            counts = self._filter(consumer) if self.winners else None
            for one, records in self._read(consumer, ends):
                if self.winners is None:
                    refuse_attempts((attempt_header(r) for r in records if r.headers), self.topic)
                kept = records if counts is None else counts.counted(one.partition, records)
                if kept:
                    yield kept

    def _filter(self, consumer: KafkaConsumer) -> WinnersFilter:
        side = TopicPartition(side_topic(self.topic), 0)
        if not consumer.partitions_for_topic(side.topic):
            return WinnersFilter(Winners(there=False))
        first, ends = consumer.beginning_offsets([side])[side], consumer.end_offsets([side])
        values = [r.value for _, records in self._read(consumer, ends) for r in records]
        return WinnersFilter(Winners(complete=first == 0).read(values))

    def _ends(self, consumer: KafkaConsumer) -> dict[TopicPartition, int]:
        ends: dict[TopicPartition, int] = consumer.end_offsets(self._partitions(consumer))
        return ends

    def _read(
        self, consumer: KafkaConsumer, ends: Mapping[TopicPartition, int]
    ) -> Iterator[tuple[TopicPartition, list[Any]]]:
        """The records from the beginning to these ends, in order within a partition."""
        consumer.assign(list(ends))
        consumer.seek_to_beginning()
        heard = time.monotonic()
        while any(consumer.position(one) < end for one, end in ends.items()):
            before = [consumer.position(one) for one in ends]
            try:
                polled = consumer.poll(500, max_records=POLL_RECORDS)
            except CorruptRecordError as error:
                raise self._undecodable(consumer, ends) from error
            for one, records in polled.items():
                if kept := [record for record in records if record.offset < ends[one]]:
                    yield one, kept
            if before != [consumer.position(one) for one in ends]:
                heard = time.monotonic()
            elif time.monotonic() - heard > SILENCE_SECONDS:
                raise UnavailableError(f"{self.name} cannot be read to its end: no answer.")

    def _undecodable(
        self, consumer: KafkaConsumer, ends: Mapping[TopicPartition, int]
    ) -> DataError:
        """The error for a record at which kafka-python stops; it does not say of which partition."""
        places = {one.partition: consumer.position(one) for one in ends}
        left = [
            f"offset {places[one.partition]} of partition {one.partition}"
            for one in sorted(ends)
            if places[one.partition] < ends[one]
        ]
        return DataError(
            f"{self.name}: kafka-python cannot decode the record at {' or '.join(left)}: a header's "
            "key is not UTF-8, or it is damaged.",
            remedy="read the topic with the source abs-kafka without headers, and audit what it reads; "
            "or delete the records up to this one (kafka-delete-records).",
        )

    def _partitions(self, consumer: KafkaConsumer) -> list[TopicPartition]:
        """All partitions; raises ConfigError if the topic stays unknown to every broker."""
        numbers = consumer.partitions_for_topic(self.topic)
        deadline = time.monotonic() + NEW_TOPIC_SECONDS
        # Brokers learn of a topic one after another: the one that was asked may not know it yet.
        while not numbers and time.monotonic() < deadline:
            time.sleep(NEW_TOPIC_PAUSE)
            numbers = consumer.partitions_for_topic(self.topic)
        if not numbers:
            raise ConfigError(f"There is no {self.name}.", remedy="correct the name.")
        return [TopicPartition(self.topic, number) for number in sorted(numbers)]

    @contextlib.contextmanager
    def _consumer(self, isolation: str) -> Iterator[KafkaConsumer]:
        try:
            with _connected(
                bootstrap_servers=self.servers.split(","),
                isolation_level=isolation,
                group_id=None,
                enable_auto_commit=False,
                allow_auto_create_topics=False,
                max_partition_fetch_bytes=16 << 20,
                **self.settings,
            ) as consumer:
                yield consumer
        except KafkaError as error:
            raise _mapped(error, self.name) from error


@contextlib.contextmanager
def _connected(**config: Any) -> Iterator[KafkaConsumer]:
    """A consumer, closed at the end.

    A constructor that reaches no broker raises while its I/O thread goes on, and leaves no consumer
    to close; so the connections are made here and closed in any case.
    """
    with connections(keep=False) as made:
        consumer = KafkaConsumer(kafka_client=made, **config)
        try:
            yield consumer
        finally:
            consumer.close()


def _mapped(error: KafkaError, name: str) -> AbsError:
    if isinstance(error, UnsupportedCodecError):
        return ConfigError(
            f"{name} cannot be read: {error.args[0]}.",
            remedy="install it beside kafka-python: lz4, python-snappy or zstandard.",
        )
    sentence = f"{name} cannot be read: {type(error).__name__}."
    if isinstance(error, AuthorizationError | SaslAuthenticationFailedError):
        return RefusedError(sentence, remedy="use credentials that may read it.")
    return UnavailableError(
        sentence, remedy="check that the broker runs and answers at this address."
    )
