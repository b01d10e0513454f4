"""The format ``abs-kafka``; see ``abs_sinks.door``. Clients are imported when they are used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import pyarrow as pa

from abs_core.contracts import Committer, Inventory
from abs_core.errors import ConfigError
from abs_core.model import Finding, Guarantee, JobState
from abs_core.routing import ByProtocol
from abs_sinks.capabilities import Attempts, LetterPlaces
from abs_sinks.door import Around, SinkFormat, job_of
from abs_sinks.urls import parts_of

if TYPE_CHECKING:
    from abs_sinks.asof import AsOf
    from abs_sinks.deadletters.place import KeptLetters
    from abs_sinks.kafka import KafkaOptions, KafkaSink

LIST_SECONDS = 15.0


class LetterTopics(LetterPlaces):
    """Topics of dead letters."""

    def at(
        self, url: str, deadletter: str, table: str | None, more: Mapping[str, str]
    ) -> KeptLetters:
        from abs_clients.kafka.settings import lines_of
        from abs_sinks.kafka.replay import KafkaLetters

        texts = {**FORMAT._texts_at(url, table), **more, "deadletter": deadletter}
        config = dict(parse_qsl(parts_of(url).query)).get("config")
        lines = {} if config is None else lines_of(Path(config))
        # How to log in at the registry, which letters do not tell; where it is, they do.
        registry = {name: text for name, text in lines.items() if name.startswith("registry.")}
        return KafkaLetters(FORMAT.parse(texts), {**texts, **registry})

    def of(self, options: KafkaOptions) -> KeptLetters:
        from abs_sinks.kafka.replay import KafkaLetters

        return KafkaLetters(replace(options, deadletter=options.letters or options.topic))

    def as_input(self, letters: pa.RecordBatch) -> pa.RecordBatch:
        from abs_sinks.kafka.letters import letter_records
        from abs_sinks.kafka.records import HEADERS

        made = letter_records(letters, "", None)
        value = pa.field("value", pa.binary(), nullable=False)
        return pa.record_batch(
            [made.values, made.headers], pa.schema([value, ("headers", HEADERS)])
        )


class SideTopics(Attempts):
    """Attempts of ``protocol=idempotent``: topics with winners in a side topic."""

    def places(self, options: KafkaOptions) -> Sequence[str]:
        """The visible topics of the cluster that ``protocol=idempotent`` has written to."""
        from abs_clients.kafka.attempts import side_topic
        from abs_clients.kafka.cluster import cluster

        ending = side_topic("")
        names = cluster(options.kafka).admin.names(LIST_SECONDS)
        return [name.removesuffix(ending) for name in names if name.endswith(ending)]

    def give_up(self, options: KafkaOptions, state: JobState) -> None:
        """See ``Attempts``; does nothing for a job without such topics."""
        from abs_sinks.kafka.give_up_attempts import give_up

        topic = state.target.rpartition("/")[2]
        # What is open is decided: such a job has another protocol, which sends nothing undecided there.
        if not state.open and topic in self.places(options):
            give_up(replace(options, topic=topic), state.job)


class KafkaFormat(SinkFormat):
    """Topics of Kafka.

    ``kafka://host:port,host:port/topic`` names a register's topic (``abs-register`` where none is
    given), with librdkafka's settings as its query (``?security.protocol=ssl&ssl.ca.location=...``),
    or in a file of lines ``name=value`` (``?config=FILE``), where passwords belong.
    """

    name = "abs-kafka"
    schemes = ("kafka",)
    marks = ("topic", "kafka.")
    library = "abs_sinks.kafka.sink"
    segments_beside = True
    buries = True
    past = True
    audit = "abs_audit.kafka:KafkaSide"

    def parse(self, options: Mapping[str, str]) -> KafkaOptions:
        from abs_sinks.kafka.options import KafkaOptions

        return KafkaOptions.parse(options)

    def at(self, url: str, table: str | None = None, stateschema: str = "abs") -> KafkaOptions:
        """See ``SinkFormat``; ``table`` is the topic of the data."""
        return self.parse(self._texts_at(url, table))

    def letters(self) -> LetterTopics:
        return LetterTopics()

    def attempts(self) -> SideTopics:
        return SideTopics()

    def _texts_at(self, url: str, table: str | None) -> dict[str, str]:
        from abs_clients.kafka.settings import from_file

        parts = parts_of(url)
        named = dict(parse_qsl(parts.query))
        config = named.pop("config", None)
        options = {f"kafka.{name}": value for name, value in named.items()}
        if config is not None:
            pairs = from_file(Path(config), parts.netloc).pairs
            options |= {f"kafka.{name}": value for name, value in pairs}
        options["kafka.bootstrap.servers"] = parts.netloc
        if parts.path.strip("/"):
            options["registertopic"] = parts.path.strip("/")
        return options if table is None else {**options, "topic": table}

    def sink(self, options: KafkaOptions, schema: pa.Schema, *, alone: bool = True) -> KafkaSink:
        from abs_sinks.kafka.sink import KafkaSink

        return KafkaSink(options, schema, co_commit=alone)

    def administer(self, options: KafkaOptions) -> tuple[Inventory, Committer]:
        from abs_sinks.kafka.register.store import KafkaRegister
        from abs_sinks.kafka.twophase import TwoPhaseCommitter
        from abs_sinks.kafka.wal import WalCommitter, store_of

        committers: dict[str, Committer] = {"2pc": TwoPhaseCommitter(options)}
        if options.wal is not None:
            committers["wal"] = WalCommitter(options, store_of(options))
        return KafkaRegister(options), ByProtocol(committers)

    def guarantee(self, options: KafkaOptions) -> Guarantee:
        from abs_sinks.kafka.sink import guarantee

        return guarantee(options)

    def where(self, options: KafkaOptions) -> str:
        return f"kafka://{options.kafka.bootstrap}, topic {options.topic or 'of the column topic'}"

    def dataset(self, options: KafkaOptions, target: str) -> tuple[str, str]:
        """``kafka://host:port`` of the first broker, and the topic."""
        broker = options.kafka.bootstrap.split(",")[0].strip()
        return f"kafka://{broker}", target.rpartition("/")[2]

    def identity(self, options: KafkaOptions) -> str:
        from abs_sinks.kafka.options import identity

        return identity(options)

    def preflight(self, options: KafkaOptions, around: Around) -> Sequence[Finding]:
        from abs_sinks.kafka.preflight import preflight
        from abs_sinks.kafka.preflight_state import preflight_state

        state = preflight_state(options, job_of(options), own_register=around.own_register)
        return [*preflight(options, around.schema), *state]

    def logins(self, options: KafkaOptions) -> Sequence[Finding]:
        from abs_clients.kafka.login import told_login

        return [told_login(options.kafka)]

    def container(self, target: str) -> str:
        """The cluster."""
        return target.partition("/")[0]

    def check_there(self, options: KafkaOptions) -> None:
        from abs_sinks.kafka.options import REGISTERTOPIC
        from abs_sinks.kafka.register.topic import find_topic

        # The default's topic is made by the first job.
        topic = options.registertopic
        if topic != REGISTERTOPIC and find_topic(options.kafka, topic) is None:
            raise ConfigError(
                f"There is no topic {topic} at {options.kafka.bootstrap}.",
                remedy="name the topic of the registers: the sink's option registertopic.",
            )

    def forget(
        self, options: KafkaOptions, state: JobState, letters: bool | None = None
    ) -> Sequence[str]:
        from abs_sinks.kafka.traces import remove_traces

        return () if letters is None else remove_traces(options, state)

    def as_of(self, mark: str, options: KafkaOptions | None = None) -> AsOf:
        """See ``SinkFormat``: where the partitions ended."""
        from abs_sinks.kafka.lookback import as_of

        return as_of(mark, options)


FORMAT = KafkaFormat()
