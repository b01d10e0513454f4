"""The options of ``abs-kafka`` as a sink, read once into one typed value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

from abs_clients.avro.schema import parsed
from abs_clients.avro.settings import (
    AVRO,
    COLUMNS,
    ColumnFormats,
    RegistrySettings,
    check_formats,
)
from abs_clients.kafka.cluster_facts import cluster_id
from abs_clients.kafka.setting_table import TWO_PHASE
from abs_clients.kafka.settings import PREFIX, Settings
from abs_clients.options import (
    Option,
    Problems,
    boolean,
    described,
    fields_from,
    one_of,
    options_of,
    read_options,
    text,
)
from abs_core.errors import OptionError
from abs_core.patience import Patience
from abs_sinks.kafka.columnar.choice import AUTO, COLUMNAR, PRODUCERS, Choice, choose, refusals_of
from abs_sinks.options import (
    COMMON,
    DELETES,
    CommonOptions,
    DeadLetterOptions,
    Deletes,
    ToSink,
    check_changes,
    check_may_bury,
    column_names,
    sink_or,
)

NAME = "abs-kafka"

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")

BY_TOPIC, BY_RECORD, BY_BOTH = "topic", "record", "topic_record"
_STRATEGIES = {
    BY_TOPIC: BY_TOPIC,
    BY_RECORD: BY_RECORD,
    BY_BOTH: BY_BOTH,
    "topicnamestrategy": BY_TOPIC,
    "recordnamestrategy": BY_RECORD,
    "topicrecordnamestrategy": BY_BOTH,
}


def _strategy(value: str) -> str:
    """Which subject a schema has; Java's class names are taken, too."""
    name = _STRATEGIES.get(value.strip().lower().rpartition(".")[2])
    if name is None:
        raise ValueError(f"one of {BY_TOPIC}, {BY_RECORD}, {BY_BOTH}")
    return name


@described
@dataclass(frozen=True, slots=True)
class Formats(ColumnFormats):
    """How key and value are encoded.

    Args:
        value_schema, key_schema: to write with, as JSON; None: the subject's newest one, or, where
            ``register`` allows it, one that is made of the column's type.
    """

    value_strategy: Annotated[
        str | None,
        Option("value.subject.name.strategy", _strategy),
        "which subject the schema has: `topic` (default), `record`, `topic_record`",
    ] = None
    key_strategy: Annotated[
        str | None, Option("key.subject.name.strategy", _strategy), "the same for the key"
    ] = None
    register: Annotated[
        bool,
        Option("registry.register", boolean, False),
        "whether a schema that the registry does not have is registered",
    ] = False

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """From what ``read_options`` returned."""
        return cls(**fields_from(cls, values))

    @property
    def texts(self) -> dict[str, str]:
        """What is set, by the options' names."""
        texts = {"registry.register": "true"} if self.register else {}
        for column in self.columns:
            values = {
                "format": AVRO,
                "schema": self.schema(column),
                "subject.name.strategy": getattr(self, f"{column}_strategy"),
            }
            texts |= {f"{column}.{name}": text for name, text in values.items() if text is not None}
        return texts

    def subject(self, column: str, topic: str | None) -> str:
        """The subject under which the registry has the schema of a column."""
        how = getattr(self, f"{column}_strategy") or BY_TOPIC
        if how == BY_TOPIC:
            return f"{topic}-{column}"
        name = parsed(str(self.schema(column))).name
        return name if how == BY_RECORD else f"{topic}-{name}"


def check_subjects(values: Mapping[str, Any], problems: Problems) -> None:
    """Note what a subject's name needs and is not given."""
    for column in COLUMNS:
        if values[f"{column}.format"] != AVRO:
            continue
        how = values[f"{column}.subject.name.strategy"] or BY_TOPIC
        if how != BY_RECORD and values["topic"] is None:
            problems.add(
                f"{column}.format=avro with the subject of a topic needs the option topic.",
                f"set topic, or {column}.subject.name.strategy=record with {column}.schema.",
            )
        schema = values[f"{column}.schema"]
        if how != BY_TOPIC and (schema is None or parsed(schema).kind != "record"):
            problems.add(
                f"{column}.subject.name.strategy={how} names a schema by its record.",
                f"set {column}.schema to the schema of a record.",
            )


def is_topic_name(text: str) -> bool:
    """Kafka's rule (``org.apache.kafka.common.internals.Topic``)."""
    return _TOPIC.fullmatch(text) is not None and text not in (".", "..")


def topic_name(text: str) -> str:
    """Check a topic's name."""
    if not is_topic_name(text):
        raise OptionError(
            f"{text!r} is not a topic name.",
            remedy="use 1 to 249 letters, digits, dots, underscores and hyphens.",
        )
    return text


def _deletes(value: str) -> Deletes:
    return Deletes.parse(value, column_names)


_ELSEWHERE = {
    "bootstrap.servers": "write kafka.bootstrap.servers.",
    "subscribe": "it is an option of the source; name the topic to write to by topic.",
    "subscribePattern": "it is an option of the source; name the topic to write to by topic.",
    "assign": "it is an option of the source; name the topic to write to by topic.",
    "startingOffsets": "it is an option of the source.",
    "endingOffsets": "it is an option of the source.",
    "failOnDataLoss": "it is an option of the source.",
    "includeHeaders": "leave it out: the column headers is written if there is one.",
    "transactional.id": "leave it out: this sink names its transactions itself.",
    "path": "use topic.",
    "schemachange": "leave it out: a topic has no columns; the value has what you put into it.",
    "key": "leave it out: the column key is the record's key: select(... AS key, ... AS value).",
}
"""Options of Spark's Kafka source and of other connectors."""


def _write(text: str) -> str:
    if text.strip().lower() == "upsert":
        raise OptionError(
            "write=upsert is not supported.",
            remedy="leave it out: this sink appends; readers of a compacted topic keep a key's newest; "
            "or set write=changes, with deletes and an order.",
        )
    return one_of("append", "changes")(text)


REGISTERTOPIC = "abs-register"


@described
@dataclass(frozen=True, slots=True)
class KafkaOptions(DeadLetterOptions[str]):
    """Where and how to write. Its ``repr`` shows no secret (I9).

    Args:
        kafka: what was given as ``kafka.*``: librdkafka's settings.
        common: what every sink takes.
        formats: of key and value; schemas are in ``registry``.
    """

    kafka: Settings
    topic: Annotated[
        str | None,
        topic_name,
        "the topic of every record; without it, the column `topic` names it. Never a "
        "register's topic or a side topic",
    ] = None
    common: CommonOptions = field(default_factory=CommonOptions)
    registertopic: Annotated[
        str, topic_name, "the compacted topic that holds the jobs' registers"
    ] = REGISTERTOPIC
    producer: Annotated[
        str,
        one_of(*PRODUCERS),
        "which sender to use, `auto`, `columnar` or `librdkafka`: see [how records are "
        "sent](kafka.md#how-records-are-sent)",
    ] = AUTO
    wal: Annotated[
        str | None,
        text,
        "with `protocol=wal`: `file:///folder` (an absolute path that all machines see), "
        "or `s3://bucket/prefix` (`?endpoint=http://host:port&region=...`). Default of a "
        "stream: `<checkpointLocation>/abs/wal`",
    ] = None
    write: Annotated[
        str,
        _write,
        "`append`, or `changes`: rows are changes of keys, see [changes into a "
        "topic](../how-to/changes.md#changes-into-a-topic)",
    ] = "append"
    sequenceby: Annotated[
        tuple[str, ...],
        column_names,
        "changes: the columns of a change's position, by which a key's records of an "
        "epoch are ordered",
    ] = ()
    applyasdeletes: Annotated[
        Deletes,
        _deletes,
        "changes: which ones delete: a boolean column, or `column=value,value`; their "
        "records have no value",
    ] = DELETES
    deadletter: Annotated[
        str | ToSink | None,
        sink_or(topic_name),
        "a topic for rows that the topic does not take, in the same transaction; in "
        "`abs_spark.epoch` also another sink (`sink:NAME`). Without it such a row stops "
        "the query; see [dead letters](dead-letters.md)",
    ] = field(default=None, kw_only=True)
    formats: Formats = field(default_factory=Formats)
    registry: RegistrySettings = field(default_factory=RegistrySettings)

    @property
    def protocol(self) -> str:
        return self.common.protocol

    @property
    def written(self) -> dict[str, str]:
        """What dead letters tell of how rows are written: that they are changes, or with a schema."""
        if self.write != "changes":
            return self.formats.texts | self.registry.place if self.formats.columns else {}
        return {
            "write": "changes",
            "sequenceby": ",".join(self.sequenceby),
            "applyasdeletes": str(self.applyasdeletes),
        }

    @property
    def choice(self) -> Choice:
        """The chosen producer; ``OptionError`` if the given one is not possible."""
        return choose(self.producer, self.topic, self.kafka)

    @property
    def patience(self) -> Patience:
        """The patience with the brokers."""
        return Patience(self.common.patience, system=f"Kafka at {self.kafka.bootstrap}")

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Read options as Spark passes them: text to text, names in any case.

        Raises:
            OptionError: lists all unknown, missing, malformed and contradictory options.
        """
        problems = Problems(NAME)
        values = read_options(
            options, (*COMMON, *OPTIONS), problems, elsewhere=_ELSEWHERE, prefix=PREFIX
        )
        kafka = Settings.read(options, problems)
        common = CommonOptions.of(values)
        _check_together(common, values, kafka, problems)
        if kafka.two_phase and common.protocol != "2pc":
            problems.add(
                f"{PREFIX}{TWO_PHASE}=true has no meaning for protocol={common.protocol}: it leaves no "
                "transaction open between pre-commit and commit.",
                "leave it out, or set protocol=2pc.",
            )
        if values["producer"] == COLUMNAR:
            for refusal in refusals_of(values["topic"], kafka):
                problems.add(f"producer={COLUMNAR} {refusal.what}.", refusal.remedy)
        check_formats(values, problems)
        check_subjects(values, problems)
        problems.raise_any()
        parsed = cls(
            kafka,
            common=common,
            formats=Formats.of(values),
            registry=RegistrySettings.of(values),
            **fields_from(cls, values),
        )
        if kafka.two_phase:
            parsed.choice  # noqa: B018 - it raises if librdkafka would send
        return parsed


OPTIONS = tuple(
    option for part in (KafkaOptions, Formats, RegistrySettings) for option in options_of(part)
)


def identity(options: KafkaOptions) -> str:
    """The target's name: ``kafka:<cluster id>/<topic>``, with ``*`` where a column names the topic.

    Raises:
        TargetError: no broker answers, or it refuses.
    """
    return f"kafka:{cluster_id(options.kafka)}/{options.topic or '*'}"


def _check_changes(
    common: CommonOptions, values: Mapping[str, Any], kafka: Settings, problems: Problems
) -> None:
    if not check_changes(values, {"sequenceby": (), "applyasdeletes": DELETES}, problems):
        return
    if common.protocol != "wal":
        problems.add(
            f"protocol={common.protocol} cannot write changes: its tasks send in parallel, and a key's "
            "records would be in no order.",
            "set protocol=wal, whose driver sends an epoch in order.",
        )
    if kafka.get("partitioner") == "random":
        problems.add(
            "kafka.partitioner=random spreads the records of a key over partitions.",
            "leave it out, or take one by key.",
        )


def _check_together(
    common: CommonOptions, values: Mapping[str, Any], kafka: Settings, problems: Problems
) -> None:
    if common.protocol == "wal" and values["wal"] is None:
        problems.add(
            "protocol=wal needs the option wal: the place where segments are kept until their "
            "epoch is committed.",
            "give a URL that every task and the driver reach: file:///..., or "
            "s3://bucket/prefix; or, for a stream, give checkpointLocation as an option: then "
            "its folder abs/wal is used.",
        )
    if common.protocol != "wal" and values["wal"] is not None:
        problems.add(
            f"The option wal has no meaning for protocol={common.protocol}.",
            "did you mean protocol=wal?",
        )
    _check_changes(common, values, kafka, problems)
    check_may_bury(common, values, problems)
    if values["deadletter"] in (values["topic"] or "", values["registertopic"]):
        problems.add(
            f"The topic {values['deadletter']} (option deadletter) is that of the rows or of the "
            "registers.",
            "name another one.",
        )
    if values["topic"] is not None and values["topic"] == values["registertopic"]:
        problems.add(
            f"The topic {values['topic']} is the one that holds the registers.",
            "write to another topic, or set registertopic.",
        )
