"""Places that jobs write to: the registers in each, and its committer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from abs_core.errors import ConfigError, OptionError
from abs_sinks.shown import parts_of, scheme_of

if TYPE_CHECKING:
    # Drivers and Arrow take a second to import; `abs --help` shall not wait for them.
    from collections.abc import Callable

    from abs_cli.sinksfile import FiledSink
    from abs_core.contracts import Committer, Inventory
    from abs_core.model import HandleName, Inspection, Outcome
    from abs_sinks.kafka.options import KafkaOptions
    from abs_sinks.postgres.options import PostgresOptions
    from abs_sinks.s3.options import S3Options


@dataclass(frozen=True, slots=True)
class Place:
    """The registers of one place, and the committer of their handles.

    Args:
        system: prefix of the target identities that the committer knows.
        identity: of the target, if the place is one sink's; it connects.
        check: raises if the place does not exist; called if it is empty.
    """

    register: Inventory
    committer: Committer
    system: str
    identity: Callable[[], str | None] | None = None
    check: Callable[[], None] | None = None


def place_at(url: str, schema: str) -> Place:
    """The place of a URL, without connecting; raises OptionError if the URL cannot be read."""
    match scheme_of(url):
        case "kafka":
            return _kafka_at(url)
        case "s3" | "s3a" | "s3n":
            return _s3_at(url)
        case "" | "postgres" | "postgresql" | "jdbc":
            return _postgres_at(url, schema)
        case scheme:
            return _other(url, scheme)


def place_of(sink: FiledSink) -> Place:
    """The place of one sink of a job, without connecting; raises as ``options_of``."""
    match sink.format:
        case "abs-postgres":
            return _postgres(options_of(sink))
        case "abs-kafka":
            return _kafka(options_of(sink))
        case "abs-s3":
            return _s3(options_of(sink))
        case _:
            url = url_of(sink)
            return replace(_other(url, scheme_of(url)), identity=partial(_identity_of, sink))


def options_of(sink: FiledSink) -> Any:
    """The options of one sink of a job, parsed by its format.

    Raises:
        OptionError: they cannot be read, or select a protocol without a decision; or there is no such
            format.
        ConfigError: the format cannot be loaded.
    """
    from abs_spark.formats import sink_format

    options: Any
    if sink.format == "abs-kafka":
        from abs_sinks.kafka.options import KafkaOptions
        from abs_spark.wal_default import with_wal

        options = KafkaOptions.parse(with_wal(sink.options, started=False))
    else:
        options = sink_format(sink.format).parse(sink.options)
    if options.common.protocol == "idempotent":
        raise OptionError(
            f"The sink {sink.name} has protocol=idempotent, which cannot be used together with other "
            "sinks: its rows are visible before the decision.",
            remedy="set protocol=2pc or wal; for a job with this sink alone use --url.",
        )
    return options


def url_of(sink: FiledSink) -> str:
    """The place of another package's sink; raises ConfigError if the file does not say it."""
    if sink.url is None:
        raise ConfigError(
            f"The file does not say where the sink {sink.name} keeps its registers.",
            remedy=f'add url = "..." to [sinks.{sink.name}], a URL of {sink.format}.',
        )
    return sink.url


def _identity_of(sink: FiledSink) -> str:
    import pyarrow as pa

    from abs_spark.formats.others import make

    made = make(options_of(sink), pa.schema([]))
    try:
        return made.target
    finally:
        made.close()


def _postgres_at(url: str, schema: str) -> Place:
    from abs_sinks.postgres.options import PostgresOptions

    # The table is not looked at: handles are ended by name.
    named = {"url": url, "dbtable": f'"{schema}".register', "stateschema": schema}
    return _postgres(PostgresOptions.parse(named))


def _postgres(options: PostgresOptions) -> Place:
    from abs_core.routing import ByProtocol, NothingToCommit
    from abs_sinks.postgres.register import PostgresRegister
    from abs_sinks.postgres.target import identity_at
    from abs_sinks.postgres.twophase import TwoPhaseCommitter

    committer = ByProtocol(
        {
            "2pc": TwoPhaseCommitter(options),
            "wal": _staged(options),
            "idempotent": NothingToCommit(),
        }
    )
    return Place(PostgresRegister(options), committer, "postgres", partial(identity_at, options))


def _staged(options: PostgresOptions) -> Committer:
    import pyarrow as pa

    from abs_sinks.postgres.tables import Table, Tables
    from abs_sinks.postgres.wal import WalCommitter

    return _WithoutColumns(WalCommitter(Tables({0: Table(options, pa.schema([]))})))


class _WithoutColumns:
    """A ``Committer`` of staged rows that lists and aborts: applying needs the input's columns."""

    def __init__(self, staged: Committer) -> None:
        self.abort, self.in_doubt, self.forget = staged.abort, staged.in_doubt, staged.forget

    def inspect(self, committables: object) -> Mapping[HandleName, Inspection]:
        raise _no_columns()

    def commit(self, committables: object) -> Mapping[HandleName, Outcome]:
        raise _no_columns()


def _no_columns() -> ConfigError:
    return ConfigError(
        "A decided epoch has rows that protocol=wal has staged in PostgreSQL. Applying them needs the "
        "columns of the job's input, which commands do not know.",
        remedy="start the job again; it commits the epoch.",
    )


def _kafka_at(url: str) -> Place:
    options = kafka_options(url)
    parts = parts_of(url)

    def check_topic() -> None:
        from abs_sinks.kafka.register.topic import find_topic

        if find_topic(options.kafka, options.registertopic) is None:
            raise ConfigError(
                f"There is no topic {options.registertopic} at {parts.netloc}.",
                remedy="name the topic of the registers: the sink's option registertopic.",
            )

    return _kafka(options, check_topic if parts.path.strip("/") else None)


def _kafka(options: KafkaOptions, check: Callable[[], None] | None = None) -> Place:
    from abs_core.routing import ByProtocol
    from abs_sinks.kafka.options import identity
    from abs_sinks.kafka.register.store import KafkaRegister
    from abs_sinks.kafka.twophase import TwoPhaseCommitter
    from abs_sinks.kafka.wal import WalCommitter, store_of

    committers: dict[str, Committer] = {"2pc": TwoPhaseCommitter(options)}
    if options.common.wal is not None:
        committers["wal"] = WalCommitter(options, store_of(options))
    register = KafkaRegister(options)
    return Place(register, ByProtocol(committers), "kafka", partial(identity, options), check)


def kafka_options(url: str, **more: str) -> KafkaOptions:
    """The sink's options from ``kafka://...``, with others as its query; raises OptionError."""
    from abs_clients.kafka.settings import from_file
    from abs_sinks.kafka.options import KafkaOptions

    parts = parts_of(url)
    if parts.scheme != "kafka":
        raise ConfigError(
            "The URL does not name a Kafka cluster.", remedy="write kafka://host:port/topic."
        )
    named = dict(parse_qsl(parts.query))
    config = named.pop("config", None)
    given = {f"kafka.{name}": value for name, value in named.items()}
    if config is not None:
        pairs = from_file(Path(config), parts.netloc).pairs
        given |= {f"kafka.{name}": value for name, value in pairs}
    given["kafka.bootstrap.servers"] = parts.netloc
    if parts.path.strip("/"):
        given["registertopic"] = parts.path.strip("/")
    return KafkaOptions.parse({**given, **more})


def _s3_at(url: str) -> Place:
    from abs_sinks.s3.options import S3Options

    path, _, query = url.partition("?")
    return _s3(S3Options.parse({**dict(parse_qsl(query)), "path": path}))


def _s3(options: S3Options) -> Place:
    from abs_sinks.s3.register import S3Register, Seen
    from abs_sinks.s3.sink import looking_after_any

    # It ends what any protocol left: which one a job used does not matter here.
    seen: Seen = {}
    committer = looking_after_any(options, seen, sized=True)
    return Place(S3Register(options, seen), committer, "s3", lambda: str(options.path))


def _other(url: str, scheme: str) -> Place:
    """The place of another package's sink; see ``abs_core.formats``."""
    from abs_core.formats import GROUP, format_of

    found = format_of(scheme)
    if found is None:
        raise OptionError(
            f"The URL begins with {scheme}:, which is not a known system with registers.",
            remedy="begin it with postgresql://, kafka:// or s3://; a sink of another package is found "
            f"by its entry point of the group {GROUP}.",
        )
    register, committer = found.look_after(url)
    return Place(register, committer, scheme)
