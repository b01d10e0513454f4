"""Where registers and handles are, for the commands that look after them.

A register lies in its sink's own system: a URL says which.

- ``kafka://host:port,host:port/topic`` names a register's topic (``abs-register`` where none is given),
  with librdkafka's settings as its query (``?security.protocol=ssl&ssl.ca.location=...``), or in a
  file of lines ``name=value`` (``?config=FILE``), where passwords belong;
- ``s3://bucket/path`` is the sink's option path, its query other options of the sink
  (``?endpoint=http://host:port&region=...&statepath=...``); credentials come by boto3's chain;
- ``postgresql://...``, ``jdbc:postgresql://...`` and libpq's keywords name a PostgreSQL database.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import parse_qsl

import typer

from abs_core.errors import ConfigError, OptionError
from abs_core.model import AND, JobState
from abs_core.protocol import Identity
from abs_sinks.shown import parts_of, scheme_of

if TYPE_CHECKING:
    # Drivers and Arrow take a second to import; `abs --help` shall not wait for them.
    from collections.abc import Callable, Sequence

    from abs_core.contracts import Committer, Inventory, Stored
    from abs_core.coordinator import Coordinator
    from abs_sinks.kafka.options import KafkaOptions

SYSTEMS = ("postgres", "kafka", "s3", "s3a", "s3n")
"""How identities of targets begin, before their first colon."""

Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar=["ABS_REGISTER_URL", "ABS_POSTGRES_URL"],
        show_envvar=False,  # click shows a list of them as Python's
        help="The database, as the sink's option url; or kafka://host:port/registertopic, or "
        "s3://bucket/path?endpoint=...&region=... Without it: ABS_REGISTER_URL, else "
        "ABS_POSTGRES_URL.",
    ),
]
Schema = Annotated[
    str,
    typer.Option(
        "--stateschema", help="PostgreSQL: the schema of registers, as the sink's option."
    ),
]
Job = Annotated[str, typer.Argument(help="The job's key, as `abs register list` shows it.")]


@dataclass(frozen=True, slots=True)
class State:
    """The registers of one place, and what acts on their handles.

    Args:
        system: how the identities of targets begin that the committer knows.
        check_place: raises where the place that the URL names is not there; asked where it is empty.
    """

    register: Inventory
    committer: Committer
    system: str
    check_place: Callable[[], None] | None = None

    @classmethod
    def at(cls, url: str, schema: str) -> State:
        """Does not connect.

        Raises:
            OptionError: the URL cannot be read.
        """
        match scheme_of(url):
            case "kafka":
                return _kafka(url)
            case "s3" | "s3a" | "s3n":
                return _s3(url)
            case "" | "postgres" | "postgresql" | "jdbc":
                return _postgres(url, schema)
            case scheme:
                return _other(url, scheme)

    def jobs(self) -> Sequence[Stored]:
        """Every job here.

        Raises:
            ConfigError: the place that the URL names is not there, which is not the same as empty.
        """
        found = self.register.jobs()
        if not found and self.check_place is not None:
            self.check_place()
        return found

    def of(self, job: str) -> JobState:
        """The state of a job.

        Raises:
            ConfigError: there is no such job.
        """
        stored = self.register.load(job)
        if stored is None:
            raise self.unknown(job)
        return stored.state

    def unknown(self, job: str) -> ConfigError:
        """The error for a job that has no register here; it names those that have.

        Raises:
            ConfigError: as ``jobs``.
        """
        known = ", ".join(stored.state.job for stored in self.jobs())
        return ConfigError(
            f"There is no register of a job {job!r} here.",
            remedy=f"the jobs here are: {known}." if known else "there is none here.",
        )

    def targets_elsewhere(self, state: JobState) -> list[str]:
        """Targets of the job in another system: what its decisions name there nobody here knows."""
        systems = ((target, target.partition(":")[0]) for target in state.target.split(AND))
        return [
            target
            for target, system in systems
            if not system.startswith(self.system) and _is_system(system)
        ]

    def check_whole(self, state: JobState) -> None:
        """Raise where the job has a target in another system.

        Raises:
            ConfigError: it has.
        """
        if elsewhere := self.targets_elsewhere(state):
            raise ConfigError(
                f"The register of job {state.job} is here, and what it writes to is not: "
                f"{', '.join(elsewhere)}. What became of its handles there cannot be seen from here.",
                remedy="start the job again: that ends all that it has in doubt.",
            )

    def coordinator(self, state: JobState) -> Coordinator:
        """Acts for the run that holds the job now: it raises no generation and fences nobody.

        Raises:
            ConfigError: the job's register is here, and a target of it in another system.
        """
        self.check_whole(state)
        from abs_core.coordinator import Coordinator

        who = Identity(state.job, state.lineage, state.run, state.target)
        return Coordinator(who, self.register, self.committer)


def _is_system(name: str) -> bool:
    """Whether identities of targets begin so."""
    from abs_core.formats import format_of

    return name in SYSTEMS or format_of(name) is not None


def _other(url: str, scheme: str) -> State:
    """What a sink of another package left; see ``abs_core.formats``."""
    from abs_core.formats import GROUP, format_of

    found = format_of(scheme)
    if found is None:
        raise OptionError(
            f"The URL begins with {scheme}:, which names no system that holds registers.",
            remedy="begin it with postgresql://, kafka:// or s3://; another package's sink is found by "
            f"its entry point of the group {GROUP}.",
        )
    register, committer = found.look_after(url)
    return State(register, committer, scheme)


def _postgres(url: str, schema: str) -> State:
    import pyarrow as pa

    from abs_sinks.postgres import PostgresOptions, PostgresRegister
    from abs_sinks.postgres.committer import committer_of

    # The table is not looked at: handles are ended by name.
    named = {"url": url, "dbtable": f'"{schema}".register', "stateschema": schema}
    options = PostgresOptions.parse(named)
    return State(PostgresRegister(options), committer_of(options, pa.schema([])), "postgres")


def _kafka(url: str) -> State:
    from abs_sinks.kafka.committer import TransactionCommitter
    from abs_sinks.kafka.register import KafkaRegister
    from abs_sinks.kafka.register_topic import find_topic

    options = kafka_options(url)
    parts = parts_of(url)

    def check_topic() -> None:
        if find_topic(options.kafka, options.registertopic) is None:
            raise ConfigError(
                f"There is no topic {options.registertopic} at {parts.netloc}.",
                remedy="name the topic of the registers: the sink's option registertopic.",
            )

    named = check_topic if parts.path.strip("/") else None
    return State(KafkaRegister(options), TransactionCommitter(options), "kafka", named)


def kafka_options(url: str, **more: str) -> KafkaOptions:
    """The sink's options from ``kafka://...``, and others of the sink.

    Raises:
        OptionError: the URL cannot be read.
    """
    from abs_clients.kafka.settings import from_file
    from abs_sinks.kafka.options import KafkaOptions

    parts = parts_of(url)
    if parts.scheme != "kafka":
        raise ConfigError(
            "The URL names no Kafka cluster.", remedy="write kafka://host:port/topic."
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


def _s3(url: str) -> State:
    from abs_sinks.s3.options import S3Options
    from abs_sinks.s3.register import S3Register
    from abs_sinks.s3.sink import looking_after_any

    path, _, query = url.partition("?")
    options = S3Options.parse({**dict(parse_qsl(query)), "path": path})
    # It ends what any protocol left: which one a job used does not matter here.
    return State(S3Register(options), looking_after_any(options, sized=True), "s3")
