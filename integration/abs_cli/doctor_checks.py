"""The checks of ``abs doctor`` for each format, and how it prints their findings."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from rich.markup import escape

from abs_cli.output import people
from abs_core.errors import ConfigError, SchemaError
from abs_core.model import Finding, Guarantee, Severity, job_key

if TYPE_CHECKING:
    import pyarrow as pa

    from abs_core.formats import SinkFormat
    from abs_sinks.options import CommonOptions

DOCTOR = "doctor"
"""The job whose register a sink of others is asked for, where the options name no job."""


@dataclass(frozen=True, slots=True)
class Around:
    """What is known of a job besides the options of one sink.

    Args:
        tasks: how many tasks write an epoch.
        composes: the sink is one of several that do not commit at once.
        own_register: the register is in the sink's own system.
    """

    schema: pa.Schema | None = None
    tasks: int | None = None
    composes: bool = False
    own_register: bool = True


Looked = tuple[list[Finding], Guarantee]
Look = Callable[[dict[str, str], Around], Looked]

_COLOUR = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}


def _postgres(given: dict[str, str], around: Around) -> Looked:
    from abs_sinks.postgres import PostgresOptions
    from abs_sinks.postgres.preflight import preflight
    from abs_sinks.postgres.sink import guarantee

    options = PostgresOptions.parse(given)
    job = _job(options.common)
    findings = preflight(options, around.schema, job, around.tasks, composes=around.composes)
    return findings, guarantee(options)


def _kafka(given: dict[str, str], around: Around) -> Looked:
    from abs_sinks.kafka import KafkaOptions
    from abs_sinks.kafka.preflight import preflight
    from abs_sinks.kafka.preflight_state import preflight_state
    from abs_sinks.kafka.sink import guarantee
    from abs_spark.wal_default import with_wal

    options = KafkaOptions.parse(with_wal(given, started=False))
    findings = [
        *preflight(options, around.schema),
        *preflight_state(options, _job(options.common), own_register=around.own_register),
    ]
    return findings, guarantee(options)


def _s3(given: dict[str, str], around: Around) -> Looked:
    from abs_sinks.s3 import S3Options, S3Sink
    from abs_sinks.s3.preflight import preflight
    from abs_sinks.s3.sink import guarantee

    options = S3Options.parse(given)
    findings = preflight(options, _job(options.common))
    if around.schema is not None:
        try:
            S3Sink(options, around.schema)
        except SchemaError as misfit:
            findings.append(Finding.of(misfit))
    return findings, guarantee(options)


def _other(format_: SinkFormat, given: dict[str, str], around: Around) -> Looked:
    """Checks a sink of another package, in the way an engine builds it."""
    import pyarrow as pa

    from abs_spark.formats.others import of_the_sink

    names = {name.lower(): text for name, text in given.items()}
    schema = pa.schema([]) if around.schema is None else around.schema
    sink = format_.sink(of_the_sink(given), schema)
    try:
        job = job_key(names.get("job", DOCTOR), names.get("epoch"))
        return list(sink.preflight(job, around.tasks)), sink.guarantee()
    finally:
        sink.close()


LOOKS: dict[str, Look] = {"abs-postgres": _postgres, "abs-kafka": _kafka, "abs-s3": _s3}


def look_of(name: str) -> Look:
    """The format's check; raises ConfigError if the format is unknown or cannot be loaded."""
    if name in LOOKS:
        return LOOKS[name]
    from abs_core.formats import GROUP, format_named, format_names

    found = format_named(name)
    if found is None:
        raise ConfigError(
            f"There is no format {name}.",
            remedy=f"use one of {', '.join([*LOOKS, *format_names()])}; a format of another package is "
            f"found by its entry point of the group {GROUP}.",
        )
    return partial(_other, found)


def _job(common: CommonOptions) -> str | None:
    return None if common.job is None else job_key(common.job, common.epoch)


def fails(findings: Iterable[Finding]) -> bool:
    """Whether a job with these findings would not run."""
    return any(finding.severity is Severity.ERROR for finding in findings)


def document(findings: Sequence[Finding], promise: Guarantee) -> dict[str, object]:
    """What was found out about one sink, for JSON."""
    return {"findings": listed(findings), "guarantee": dataclasses.asdict(promise)}


def listed(findings: Sequence[Finding]) -> list[dict[str, object]]:
    return [dataclasses.asdict(finding) for finding in findings]


def show_findings(findings: Sequence[Finding]) -> None:
    for finding in findings:
        colour = _COLOUR[finding.severity]
        people.print(f"[{colour}]{finding.severity}[/] {escape(finding.what)}")
        if finding.remedy:
            people.print(f"  what to do: {escape(finding.remedy)}")
    if not findings:
        people.print("[green]no problems found[/]")


def show(findings: Sequence[Finding], promise: Guarantee) -> None:
    show_findings(findings)
    people.print(
        f"{'once that is corrected: ' if fails(findings) else ''}every row exactly once (protocol "
        f"{promise.protocol}, write {promise.write})"
    )
    people.print(f"  visible: {promise.visibility}")
    people.print(f"  readers: {promise.reader}")
    for limit in promise.limits:
        people.print(f"  limit: {limit}")
    for note in promise.notes:
        people.print(f"  {note}")
