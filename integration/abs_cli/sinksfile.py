"""The sinks of a job, in a file for commands: what the job's program passes to ``abs_spark.epoch``.

    job = "orders"
    register = "payments"             # in whose system the register lies; default: the first
    checkpointLocation = "/checkpoints/orders"

    [sinks.payments]
    format = "abs-postgres"
    options = { url = "postgresql://db.example/shop", dbtable = "public.payments" }

    [sinks.alerts]
    format = "abs-kafka"
    options = { "kafka.bootstrap.servers" = "broker:9092", topic = "alerts" }
    audit = { expected = "orders.parquet", key = "id" }

It may hold passwords: nothing of it is shown.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from abs_core.errors import AbsError, ConfigError, OptionError
from abs_core.model import job_key

_TOP = {"job", "register", "checkpointLocation", "sinks"}
_OF_A_SINK = {"format", "options", "audit"}
_OF_AN_AUDIT = {"expected", "expected_table", "key", "columns", "schema", "null"}


@dataclass(frozen=True, slots=True)
class FiledSink:
    """One sink of a job.

    Args:
        options: of its format, with the checkpoint's location if the file has one.
        audit: arguments of an audit of its target, see ``abs_cli.audit_job``.
    """

    name: str
    format: str
    options: Mapping[str, str] = field(repr=False)
    audit: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class SinksFile:
    """The content of a sinks file.

    Args:
        job: its register key; None if the file has none.
        register: the name of the sink in whose system the register is stored.
        sinks: in the order of the file; never empty.
    """

    job: str | None
    register: str
    sinks: tuple[FiledSink, ...]

    @classmethod
    def read(cls, path: Path) -> SinksFile:
        """Read the file; raises ConfigError if it cannot be read or does not describe a job."""
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            # The reason alone: a line of the file may hold a password.
            why = error.strerror if isinstance(error, OSError) else type(error).__name__
            raise ConfigError(
                f"{path} cannot be read: {why}.",
                remedy="name a TOML file; see `abs doctor --help`.",
            ) from None
        try:
            return _job(document)
        except AbsError as error:
            raise ConfigError(f"{path}: {error.what}", remedy=error.remedy) from error


def _job(document: Mapping[str, Any]) -> SinksFile:
    _check(document, _TOP, "the file")
    tables = document.get("sinks")
    if not isinstance(tables, dict) or not all(isinstance(one, dict) for one in tables.values()):
        raise OptionError("It names no sink.", remedy="add one table [sinks.NAME] for each sink.")
    checkpoint = document.get("checkpointLocation")
    more = {} if checkpoint is None else {"checkpointLocation": str(checkpoint)}
    sinks = tuple(_sink(name, table, more) for name, table in tables.items())
    register = str(document.get("register", sinks[0].name if sinks else ""))
    if register not in {sink.name for sink in sinks}:
        raise OptionError(
            f"register = {register!r} is not one of its sinks.",
            remedy=f"name one of {', '.join(tables)}.",
        )
    job = document.get("job")
    return SinksFile(None if job is None else job_key(str(job)), register, sinks)


def _sink(name: str, table: Mapping[str, Any], more: Mapping[str, str]) -> FiledSink:
    _check(table, _OF_A_SINK, f"sink {name}")
    if "format" not in table or not isinstance(table.get("options"), dict):
        raise OptionError(f"The sink {name} has no format or no options.", remedy="give it both.")
    audit = table.get("audit", {})
    _check(audit, _OF_AN_AUDIT, f"the audit of sink {name}")
    return FiledSink(
        name,
        str(table["format"]),
        {**more, **_flat(table["options"])},
        {word: str(text) for word, text in audit.items()},
    )


def _flat(options: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Flatten nested tables: TOML reads ``kafka.acks = "all"`` as a table in a table."""
    made: dict[str, str] = {}
    for name, value in options.items():
        if isinstance(value, dict):
            made |= _flat(value, f"{before}{name}.")
        else:
            made[before + name] = str(value).lower() if isinstance(value, bool) else str(value)
    return made


def _check(table: object, names: set[str], whose: str) -> None:
    if not isinstance(table, dict):
        raise OptionError(f"{whose} is not a table.", remedy="see `abs doctor --help`.")
    if unknown := sorted(set(table) - names):
        raise OptionError(
            f"In {whose}, {', '.join(unknown)} is not known.",
            remedy=f"use {', '.join(sorted(names))}.",
        )
