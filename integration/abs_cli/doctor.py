"""``abs doctor``: checks whether a job would run and what it guarantees. Nothing is changed.

On S3 it puts objects under ``_abs/probe/`` and deletes them again, to find out what the server
supports.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from abs_cli.output import FAILED, AsJson, people, print_json
from abs_cli.sinksfile import FiledSink, SinksFile
from abs_core.errors import AbsError, ConfigError
from abs_core.model import Finding, Guarantee, Severity

if TYPE_CHECKING:
    import pyarrow as pa

    from abs_sinks.door import Around


Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="NAME=VALUE",
        help="An option of the job. Repeat for each option.",
    ),
]
Sinks = Annotated[
    Path | None,
    typer.Option(
        "--sinks",
        metavar="FILE",
        help="For a job with several sinks, instead of -o: a TOML file with one table [sinks.NAME] "
        "(format, options) for each sink, and register = 'NAME'.",
    ),
]
Schema = Annotated[
    str | None,
    typer.Option(
        "--schema",
        help="The input's columns, if a sample has no types (JSON, CSV): DDL as for Spark ('id "
        "BIGINT, amount DECIMAL(12,2)'), a file with such DDL, or a Parquet file.",
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="The format of the sink, as in writeStream.format(...). Default: that of the first option "
        "which only one format has, such as topic or dbtable. A path in a bucket is taken for that of "
        "abs-s3, a folder for that of abs-delta.",
    ),
]


def doctor(
    option: Options = None,
    *,
    sinks: Sinks = None,
    sample: Annotated[
        Path | None,
        typer.Option("--sample", help="A file or folder of the input (Parquet, Arrow, CSV, JSON)."),
    ] = None,
    schema: Schema = None,
    tasks: Annotated[int | None, typer.Option(help="How many tasks write an epoch.", min=1)] = None,
    sink: Format = None,
    as_json: AsJson = False,
) -> None:
    """Check whether a job would run: its options, server, target and privileges.

    Exit code 1 if it would not run. With --schema or --sample it also checks that the input's columns
    fit; not with --sinks, because each sink may have its own columns.
    """
    if sinks is not None:
        if option or sample or schema or sink:
            raise typer.BadParameter(
                "it can only be combined with --tasks and --json.", param_hint="--sinks"
            )
        if not _report_job(sinks, tasks, as_json=as_json):
            raise typer.Exit(FAILED)
        return
    if not option:
        raise typer.BadParameter("give the options of the job.", param_hint="-o or --sinks")
    options = _pairs(option)
    from abs_sinks.door import Around

    around = Around(_columns(sample, schema), tasks)
    looked = look(sink or _meant(options), options, around)
    if as_json:
        print_json(document(looked))
    else:
        show(looked)
    if fails(looked.findings):
        raise typer.Exit(FAILED)


def _meant(options: dict[str, str]) -> str:
    """The sink that these options belong to; raises ConfigError if none is specific to one sink."""
    from abs_sinks.door import format_names, recognised

    name = recognised(options)
    if name is None:
        raise ConfigError(
            "The options do not show which format the job writes to.",
            remedy=f"name it: --format {', '.join(format_names())}.",
        )
    return name


def _pairs(texts: list[str]) -> dict[str, str]:
    pairs = dict(text.partition("=")[::2] for text in texts)
    # The text itself is not shown: it may be a password.
    unreadable = [number for number, text in enumerate(texts, 1) if "=" not in text]
    if unreadable:
        raise ConfigError(
            f"-o number {unreadable[0]} does not have the form NAME=VALUE.",
            remedy="write -o dbtable=public.payments, once for each option.",
        )
    return pairs


def _columns(sample: Path | None, schema: str | None) -> pa.Schema | None:
    """The input's columns; ``schema`` takes precedence but must have all of ``sample``'s."""
    from abs_audit.ddl import schema_of

    shown = None if sample is None else _schema(sample)
    if schema is None:
        return shown
    named = schema_of(schema)
    more = [] if shown is None else sorted(set(shown.names) - set(named.names))
    if more:
        raise ConfigError(
            f"The sample has columns that the schema does not name: {', '.join(more)}.",
            remedy="add them to --schema, or omit --sample.",
        )
    return named


def _schema(sample: Path) -> pa.Schema:
    import pyarrow as pa
    import pyarrow.dataset

    files = [sample] if sample.is_file() else sorted(p for p in sample.rglob("*.*") if p.is_file())
    if not files:
        raise ConfigError(f"There is no file at {sample}.", remedy="name a file of the input.")
    kind = {"ndjson": "json", "jsonl": "json"}.get(files[0].suffix[1:], files[0].suffix[1:])
    try:
        return pyarrow.dataset.dataset(files[0], format=kind).schema
    except (ValueError, pa.ArrowException, OSError) as error:
        raise ConfigError(
            f"{files[0]} cannot be read: {error}.",
            remedy="name a Parquet, Arrow, CSV or JSON file, with that ending.",
        ) from error


@dataclasses.dataclass(frozen=True, slots=True)
class Looked:
    """What was found out about one sink."""

    findings: Sequence[Finding]
    promise: Guarantee
    logins: Sequence[Finding] = ()


SPEED = (
    "for large epochs of a format call abs_spark.register(spark) in the program that starts the query; "
    "under Spark Connect and for batch writes set spark.sql.execution.arrow.maxBytesPerBatch to "
    "2147483647 in the session, unless rows have 100 kB and more; abs_spark.epoch does it by itself"
)
"""What no option can do: Spark reads it from the session."""

_COLOUR = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}


def _report_job(path: Path, tasks: int | None, *, as_json: bool) -> bool:
    """Check every sink of a job, print the findings, and return whether the job would run.

    Raises:
        ConfigError: the file, or an option of a sink, cannot be read.
        TargetError: a system cannot be queried.
    """
    import pyarrow as pa

    from abs_cli.sites import Site
    from abs_spark.open_sinks import together
    from abs_spark.sink_spec import SinkSpec, commit_at_once

    job = SinksFile.read(path)
    sites = {sink.name: Site.of(sink) for sink in job.sinks}
    sinks = [(name, site.format, site.options) for name, site in sites.items()]
    at_once = commit_at_once([SinkSpec(kind, options, pa.schema([])) for _, kind, options in sinks])
    looked = {sink.name: _look_beside(sink, job, tasks, composes=not at_once) for sink in job.sinks}
    shared = together(sinks, tasks, at_once=at_once)
    if as_json:
        named = {name: document(report) for name, report in looked.items()}
        print_json({"sinks": named, "findings": listed(shared)})
    else:
        for name, result in looked.items():
            people.print(f"[bold]{escape(name)}[/]")
            show(
                result, speed=False
            )  # abs_spark.epoch, which takes such a file's sinks, does it itself
        people.print("[bold]all sinks together[/]")
        show_findings(shared)
        people.print("one decision: after recovery an epoch is in all targets or in none")
    return not any(map(fails, [shared, *(report.findings for report in looked.values())]))


def _look_beside(sink: FiledSink, job: SinksFile, tasks: int | None, *, composes: bool) -> Looked:
    from abs_sinks.door import Around

    options = dict(sink.options) if job.job is None else {**sink.options, "job": job.job}
    own_register = sink.name == job.register
    return look(sink.format, options, Around(None, tasks, composes, own_register))


def look(name: str, options: Mapping[str, str], around: Around) -> Looked:
    """Look at one sink; raises as ``format_named``."""
    from abs_sinks.door import format_named
    from abs_spark.sink_spec import parse

    system = format_named(name)
    parsed = parse(system, options, started=False)
    try:
        logins = system.logins(parsed)
    except AbsError as error:
        logins = [Finding.of(error)]  # the preflight, which logs in, too, judges what it means
    return Looked(system.preflight(parsed, around), system.guarantee(parsed), logins)


def fails(findings: Iterable[Finding]) -> bool:
    """Whether a job with these findings would not run."""
    return any(finding.severity is Severity.ERROR for finding in findings)


def document(looked: Looked) -> dict[str, object]:
    """What was found out about one sink, for JSON."""
    return {
        "logins": listed(looked.logins),
        "findings": listed(looked.findings),
        "guarantee": dataclasses.asdict(looked.promise),
    }


def listed(findings: Sequence[Finding]) -> list[dict[str, object]]:
    return [dataclasses.asdict(finding) for finding in findings]


def show_findings(findings: Sequence[Finding]) -> None:
    _show_each(findings)
    if not findings:
        people.print("[green]no problems found[/]")


def _show_each(findings: Sequence[Finding]) -> None:
    for finding in findings:
        colour = _COLOUR[finding.severity]
        people.print(f"[{colour}]{finding.severity}[/] {escape(finding.what)}")
        if finding.remedy:
            people.print(f"  what to do: {escape(finding.remedy)}")


def show(looked: Looked, *, speed: bool = True) -> None:
    """Print what was found out about a sink.

    Args:
        speed: whether Spark's session has to be set for it.
    """
    findings, promise = looked.findings, looked.promise
    _show_each(looked.logins)
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
    if speed:
        people.print(f"  speed: {SPEED}", soft_wrap=True)
