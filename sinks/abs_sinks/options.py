"""The options that sinks share; how options are read is in ``abs_clients.options``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Self, TypeVar, cast

from abs_clients.options import (
    Option,
    Problems,
    described,
    duration,
    fields_from,
    needed,
    one_of,
    options_of,
    read_options,
    share,
    text,
)
from abs_core.deadletters import MIN_DEAD
from abs_core.errors import OptionError
from abs_core.model import MAX_RECENT, job_key
from abs_core.patience import DEFAULT_SECONDS

T = TypeVar("T")
Place = TypeVar("Place")

PROTOCOLS = ("2pc", "wal", "idempotent")
REPLAYS = ("digest", "count", "token")


def _job_name(value: str) -> str:
    job_key(text(value))
    return value


@described
@dataclass(frozen=True, slots=True)
class CommonOptions:
    """What every sink takes."""

    protocol: Annotated[str, one_of(*PROTOCOLS), "`2pc`, `wal` or `idempotent`"] = "2pc"
    job: Annotated[
        str | None,
        _job_name,
        "a stable name of the job; default: the query's id. Only a named job always "
        "detects a deleted checkpoint",
    ] = None
    epoch: Annotated[
        str | None,
        text,
        "batch writes: the name of this batch. A second write under the same name changes nothing",
    ] = None
    adopt: Annotated[
        str | None,
        text,
        "a token that an error message names: your consent to take over a register",
    ] = None
    checkpoint: Annotated[
        str | None,
        Option("checkpointLocation", text),
        "Spark's option; set it here too if you set it in the session's configuration",
    ] = None
    patience: Annotated[
        float,
        duration(1.0, 86_400.0),
        "how long to retry while a server does not answer: a number of seconds, or `3m`; "
        "see [operations](../how-to/when-it-stops.md#how-long-a-server-may-be-away)",
    ] = DEFAULT_SECONDS
    replay: Annotated[
        str,
        one_of(*REPLAYS),
        "how a repeated batch is compared with the first one: `digest` of its rows, "
        "`count` of its rows, or its `token` only; see [the digest of "
        "rows](../explanation/protocol.md#the-digest-of-rows)",
    ] = "digest"

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """From what ``read_options`` returned for ``COMMON``."""
        return cls(**fields_from(cls, values))


COMMON = (
    *options_of(CommonOptions),
    # Spark adds it to a query that has a name.
    Option("queryName", str),
)
"""The options of every sink, see ``CommonOptions``."""

DEADLETTERMAX = 0.01
"""Default of the option ``deadlettermax``."""


def limit_text() -> str:
    """Over what the limit of dead letters (option ``deadlettermax``) is taken, for people."""
    return f"over the last {MAX_RECENT} epochs, from {MIN_DEAD} on"


def column_names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise ValueError("column names, separated by commas, each once")
    return names


@dataclass(frozen=True, slots=True)
class ToSink:
    """A sink of the same epoch as the place of dead letters: ``sink:NAME``."""

    name: str

    def __str__(self) -> str:
        return f"the sink {self.name}"


def sink_or(read: Callable[[str], T]) -> Callable[[str], T | ToSink]:
    """Read ``sink:NAME``, or a place of the sink's own system."""

    def parse(text: str) -> T | ToSink:
        prefix, _, name = text.strip().partition(":")
        return ToSink(name) if prefix.lower() == "sink" and name else read(text)

    return parse


@described
@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterOptions(Generic[Place]):
    """The options of dead letters, for a sink's own options to inherit.

    Args:
        deadletter: where rows go that the target refuses by their data: a place of the sink's own
            system, which reads it by a parser of its own, or a sink of the same epoch. Without it such
            a row stops the query.
    """

    deadletter: Place | ToSink | None = None
    deadlettermax: Annotated[
        float,
        share,
        f"the largest share of dead letters (`0.01`, `1%`) {limit_text()}; the epoch that passes "
        "it stops the query, and nothing of it is written",
    ] = DEADLETTERMAX
    deadlettercolumns: Annotated[
        tuple[str, ...],
        column_names,
        "columns of the input that dead letters do not show, for instance personal data; "
        "such letters cannot be replayed if the target needs the columns",
    ] = ()

    @property
    def letters(self) -> Place | None:
        """The place of the sink's own system."""
        return None if isinstance(self.deadletter, ToSink) else self.deadletter

    @property
    def written(self) -> dict[str, str]:
        """The options by which a dead letter's row is written again; empty: the defaults do."""
        return {}


def not_alone(place: object) -> OptionError:
    """The error where the sink has no others beside it."""
    return OptionError(
        f"The option deadletter names {place}, and this sink is alone.",
        remedy="only abs_spark.epoch has several sinks; name a place of the sink's own system.",
    )


def check_dead_letters(values: Mapping[str, Any], problems: Problems) -> None:
    """Refuse options of dead letters without a place for them."""
    if values["deadletter"] is None:
        for name, default in (("deadlettermax", DEADLETTERMAX), ("deadlettercolumns", ())):
            if values[name] != default:
                problems.add(f"The option {name} has no meaning without deadletter.", "set it too.")


def check_may_bury(common: CommonOptions, values: Mapping[str, Any], problems: Problems) -> None:
    """As ``check_dead_letters``, for sinks that may give them to another sink."""
    check_dead_letters(values, problems)
    if isinstance(values["deadletter"], ToSink) and common.protocol == "idempotent":
        problems.add(
            "protocol=idempotent gives no dead letters to another sink: it commits with the register "
            "in its own system, alone.",
            "let deadletter name a place of the sink's own system; or set protocol=wal.",
        )


def check_changes(
    values: Mapping[str, Any], defaults: Mapping[str, Any], problems: Problems
) -> bool:
    """Refuse options of changes where there are none, and changes without an order.

    Args:
        defaults: of the options that ``write=changes`` has alone.

    Returns:
        Whether changes are written.
    """
    if values["write"] != "changes":
        for name, default in defaults.items():
            if values[name] != default:
                problems.add(
                    f"The option {name} has no meaning for write={values['write']}.",
                    "did you mean write=changes?",
                )
        return False
    if not values["sequenceby"]:
        problems.add(
            "write=changes needs the option sequenceby.",
            "name the columns that hold a change's position in the order of all changes.",
        )
    return True


Kind = TypeVar("Kind")


def parse_options(
    kind: type[Kind], name: str, options: Mapping[str, str], protocols: Sequence[str] = ("2pc",)
) -> Kind:
    """The options of a sink without rules of its own about them.

    Args:
        kind: a frozen dataclass; its fields are the options (``options_of``), those without a default
            (``needed``) must be given; its field ``common`` takes ``CommonOptions``.
        name: of the format.
        protocols: what the sink has; the first is the default.

    Raises:
        OptionError: lists all unknown, missing and malformed options.
    """
    problems = Problems(name)
    present = {option.lower() for option in options}
    chosen = options if "protocol" in present else {**options, "protocol": protocols[0]}
    values = read_options(chosen, (*COMMON, *options_of(kind)), problems)
    for option in needed(kind):
        if option.name.lower() not in present:
            problems.add(f"The option {option.name} is missing.", "give it.")
    if values["protocol"] not in protocols:
        problems.add(
            f"The sink has no protocol {values['protocol']}.", f"use {', '.join(protocols)}."
        )
    problems.raise_any()
    # mypy cannot say that a class has a field ``common``.
    made: Any = kind
    given_or_default = {n: v for n, v in fields_from(kind, values).items() if v is not None}
    return cast(Kind, made(common=CommonOptions.of(values), **given_or_default))


@dataclass(frozen=True, slots=True)
class Deletes:
    """Which changes delete: those with one of these values in the column; without values: with true."""

    column: str
    values: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str, columns: Callable[[str], tuple[str, ...]]) -> Self:
        """Read ``column`` or ``column=value,value``.

        Args:
            columns: reads a list of columns.

        Raises:
            OptionError: not of this form.
        """
        name, equals, values = text.partition("=")
        named = columns(name)
        listed = tuple(value.strip() for value in values.split(",")) if equals else ()
        if len(named) > 1 or "" in listed:
            raise OptionError(
                f"applyasdeletes={text} is not a column, or a column and its values.",
                remedy="write is_deleted (a boolean column), or op=d, or op=d,D.",
            )
        return cls(named[0], listed)

    def __str__(self) -> str:
        return f"{self.column}={','.join(self.values)}" if self.values else self.column


DELETES = Deletes("op", ("d",))
"""Debezium's."""


def on_one_target(changing: object, other: object, target: str) -> OptionError:
    """The error of two sinks of one epoch with one target, of which the first writes changes."""
    return OptionError(
        f"The sinks {changing} and {other} of one epoch write to {target}, and {changing} writes "
        "changes: those of one epoch are put in order for each sink by itself, so an older change "
        "could overwrite a newer one.",
        remedy=f"let one sink write the rows of both: `where` of {changing} OR `where` of {other}, or "
        "one stream that is the union of both inputs.",
    )
