"""``abs audit``: does a target hold exactly what it should? ``--follow`` asks beside a running job."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from abs_cli.audit_job import audit_job, compared_by, progress_shown
from abs_cli.output import (
    FAILED,
    UNAVAILABLE,
    USAGE,
    AsJson,
    ReportTo,
    errors,
    exit_code,
    people,
    print_json,
    show_error,
    write_report,
)
from abs_cli.sinksfile import SinksFile
from abs_core.errors import AbsError, ConfigError, DataError, UnavailableError

if TYPE_CHECKING:
    from abs_audit import AuditSettings, Relation
import json
import sys
import time
from typing import TYPE_CHECKING

from rich.markup import escape

if TYPE_CHECKING:
    from abs_audit import AuditSettings, Relation, Round

Sinks = Annotated[
    Path | None,
    typer.Option(
        "--sinks",
        metavar="FILE",
        help="Audit all targets of a job with several sinks: a TOML file with one table "
        "[sinks.NAME] (format, options, audit = { expected = ..., key = ... }) for each sink.",
    ),
]
Epochs = Annotated[
    bool,
    typer.Option(
        "--epochs",
        help="With --sinks: also say for each epoch whether all targets have it, or none. For a query "
        "that reads one folder of files, and whose checkpoint is on this machine.",
    ),
]
Strict = Annotated[
    bool, typer.Option("--strict", help="With --sinks: a sink without an audit is not clean.")
]
Table = Annotated[str | None, typer.Option(help="Table of the target.")]
Expected = Annotated[
    list[str] | None,
    typer.Option(
        help="The expected records: one or several files, folders or 'globs' (parquet, csv, json "
        "lines, arrow), a PostgreSQL URL, kafka://host:port/topic or s3://bucket/prefix.",
        envvar="ABS_AUDIT_EXPECTED",
        show_envvar=True,
    ),
]
Actual = Annotated[
    list[str] | None,
    typer.Option(
        help="The target: a PostgreSQL URL (with --table), kafka://host:port/topic (values are "
        "JSON objects; ?value=raw: bytes; ?value=avro&config=FILE: with the registry of that file; "
        "?winners=true: written by protocol=idempotent), "
        "s3://bucket/prefix (?endpoint=...&region=...), or files. Put a password into this "
        "variable, PGPASSWORD or ~/.pgpass, not on a command line.",
        envvar="ABS_AUDIT_ACTUAL",
        show_envvar=True,
    ),
]
Schema = Annotated[
    str | None,
    typer.Option(
        help="Types of columns, if neither side has types (JSON, CSV, records of a topic): DDL as "
        "for Spark ('id BIGINT, amount DECIMAL(12,2)'), a file with such DDL, or a Parquet file.",
    ),
]
ExpectedTable = Annotated[
    str | None, typer.Option(help="Table of the expected records, if --expected is a database.")
]
Key = Annotated[
    str, typer.Option(help="Columns that identify a record, separated by commas. Default: all.")
]
Columns = Annotated[
    str, typer.Option(help="Columns to compare, in addition to the key. Default: all.")
]
Null = Annotated[str | None, typer.Option(help="Text that means NULL in CSV files, such as NA.")]
DeadLetters = Annotated[
    str | None,
    typer.Option(
        "--deadletters",
        metavar="PLACE",
        help="Expect each record in the target or, by value, among the dead letters in this table, "
        "topic or folder (option deadletter). Replayed ones do not count.",
    ),
]
Register = Annotated[
    str | None,
    typer.Option(
        "--register",
        metavar="PLACE",
        help="Where the job that writes the target has its register, if that is elsewhere (as "
        "abs_spark.once takes it: a URL or a folder): what it has begun and not finished there is not "
        "clean. With --job.",
    ),
]
JobName = Annotated[str | None, typer.Option("--job", help="With --register: the job's name.")]
Settle = Annotated[
    float, typer.Option(help="How many seconds to read again until the target stops changing.")
]
Samples = Annotated[int, typer.Option(help="How many records to show for each kind of difference.")]
StateSchema = Annotated[
    str,
    typer.Option(
        "--stateschema",
        "--state-schema",
        help="PostgreSQL: the schema of registers and staging tables.",
    ),
]
Follow = Annotated[
    bool,
    typer.Option(
        "--follow",
        help="Compare again and again beside a job that runs: rows in flight are no finding. Ends with "
        "Ctrl-C, or after --times.",
    ),
]
Every = Annotated[
    float, typer.Option(min=0.0, help="With --follow: seconds between two comparisons.")
]
Late = Annotated[
    float, typer.Option(min=0.0, help="With --follow: seconds for which a row may be in flight.")
]
Times = Annotated[
    int | None, typer.Option(min=1, help="With --follow: end after so many comparisons.")
]
Memory = Annotated[int, typer.Option(help="MiB of memory; the rest goes to disk.")]
Temporary = Annotated[
    Path | None, typer.Option(help="Folder for data that does not fit into memory.")
]


app = typer.Typer(no_args_is_help=False)


@app.callback(invoke_without_command=True)
def audit(
    context: typer.Context,
    *,
    sinks: Sinks = None,
    epochs: Epochs = False,
    strict: Strict = False,
    expected: Expected = None,
    actual: Actual = None,
    table: Table = None,
    expected_table: ExpectedTable = None,
    key: Key = "",
    columns: Columns = "",
    schema: Schema = None,
    null: Null = None,
    settle: Settle = 0.0,
    samples: Samples = 10,
    stateschema: StateSchema = "abs",
    deadletters: DeadLetters = None,
    register: Register = None,
    job: JobName = None,
    memory: Memory = 1024,
    temporary: Temporary = None,
    report: ReportTo = None,
    follow: Follow = False,
    every: Every = 10.0,
    late: Late = 60.0,
    times: Times = None,
    as_json: AsJson = False,
) -> None:
    """Compare a target with the expected records, record by record.

    Exit code 0: no record is missing, duplicate, unexpected or corrupted, and no unfinished write can
    still change the target. 1: otherwise. 2: arguments, columns or values do not fit. 3: a side cannot
    be read. With --follow: 1 if the last comparison found a duplicate, an unexpected or a late row.
    """
    if context.invoked_subcommand is not None:
        return
    from abs_audit import AuditSettings, relation

    compared = AuditSettings(
        **compared_by(key, columns, schema),
        settle=settle,
        samples=samples,
        memory_mib=memory,
        temp_directory=temporary,
    )
    with exit_code_1_for_findings_only():
        alone = {"--deadletters": deadletters, "--follow": follow or None, "--register": register}
        for option in (name for name, text in alone.items() if sinks and text is not None):
            raise typer.BadParameter("not with --sinks.", param_hint=option)
        if report is not None and (sinks is not None or follow):
            raise typer.BadParameter("not with --sinks or --follow.", param_hint="--report")
        if sinks is not None:
            audits = audit_job(SinksFile.read(sinks), compared, by_epoch=epochs, strict=strict)
            clean = audits.clean
            if as_json:
                print_json(audits.to_dict())
            else:
                audits.show()
        elif epochs or strict:
            asked = "--epochs" if epochs else "--strict"
            raise typer.BadParameter("it needs --sinks.", param_hint=asked)
        elif not expected or not actual:
            raise typer.BadParameter("name both sides.", param_hint="--expected and --actual")
        else:
            source = relation(expected, table=expected_table, null=null, stateschema=stateschema)
            target = relation(actual, table=table, null=null, stateschema=stateschema)
            if deadletters is not None:
                from abs_audit.buried import with_dead_letters

                target = with_dead_letters(target, actual[0], table, deadletters, stateschema)
            target = _with_register(target, register, job)
            if follow:
                clean = followed(source, target, compared, every, late, times, as_json=as_json)
            else:
                clean = _report_target(source, target, compared, report, as_json=as_json)
    if not clean:
        raise typer.Exit(FAILED)


def _with_register(target: Relation, register: str | None, job: str | None) -> Relation:
    """The target with what a job has begun; raises BadParameter if one of both is missing."""
    from abs_audit.begun import WithRegister

    if register is None and job is None:
        return target
    if register is None or job is None:
        raise typer.BadParameter("give both.", param_hint="--register and --job")
    return WithRegister(target, register, job)


@app.command("duplicates")
def duplicates(
    table: Annotated[
        str,
        typer.Argument(
            help="delta:/folder, delta:s3://bucket/path?endpoint=... or iceberg:db.table?catalog=..., "
            "whoever writes it."
        ),
    ],
    *,
    as_json: AsJson = False,
) -> None:
    """Find what was written twice to a table of the lake, from its log alone.

    Files that are registered twice, files that look equal in different commits, and epochs of Kafka
    Connect, Flink, Spark and application transactions that occur twice: where a reader saw both at
    once. What a table that holds each row once may show, too, is marked as "perhaps". Changes nothing.
    Exit code 0: nothing else was found. 1: something was. 2 and 3: as above.
    """
    from abs_audit.duplicates import duplicates as find
    from abs_audit.render import show_duplicates
    from abs_sinks.door import format_at

    with exit_code_1_for_findings_only():
        found_format = format_at(table)
        with errors.status("reading the table's log ..."):
            log = found_format.log()
            if log is None:
                raise ConfigError(
                    f"A target of {found_format.name} has no log of commits.",
                    remedy="name a table of the lake, or compare rows: `abs audit --expected ... "
                    "--actual`.",
                )
            history = log.history(found_format.at(table))
    findings = find(history)
    if as_json:
        documents = [finding.to_dict() for finding in findings]
        unread = [{"commit": commit.name, "properties": commit.unread} for commit in history.unread]
        print_json({"commits": len(history.commits), "duplicates": documents, "unread": unread})
    else:
        show_duplicates(history, findings, people)
    if any(finding.certain for finding in findings):
        raise typer.Exit(FAILED)


def _report_target(
    source: Relation,
    target: Relation,
    settings: AuditSettings,
    file: Path | None,
    *,
    as_json: bool,
) -> bool:
    import abs_audit
    from abs_audit.render import page, show

    with progress_shown():
        report = abs_audit.audit(source, target, settings)
    if file is not None:
        write_report(file, lambda: page(report), report.to_dict)
    if as_json:
        print_json(report.to_dict())
    else:
        show(report, people)
    return report.clean


@contextlib.contextmanager
def exit_code_1_for_findings_only() -> Iterator[None]:
    """Keep exit code 1 for "not clean"; an audit that could not run gets another one.

    The error stays what it is: one that is no outage is not told as one.
    """
    try:
        yield
    except AbsError as error:
        if exit_code(error) != FAILED:
            raise
        show_error(error)
        raise typer.Exit(USAGE if isinstance(error, DataError) else UNAVAILABLE) from error


def followed(
    source: Relation,
    target: Relation,
    settings: AuditSettings,
    every: float,
    late: float,
    times: int | None,
    *,
    as_json: bool,
) -> bool:
    """Compare until ``times`` or Ctrl-C, print each comparison, and return whether the last was well.

    A side that cannot be read for a while is told, and read again.

    Raises:
        UnavailableError: it could not be read in the last comparison.
        ConfigError, DataError, TargetError: the sides do not fit, or refuse.
    """
    from abs_audit import follow

    left, well = times, True
    while left is None or left > 0:
        try:
            with contextlib.closing(follow(source, target, settings, late=late)) as rounds:
                while left is None or left > 0:
                    left = None if left is None else left - 1
                    with progress_shown():
                        comparison = next(rounds)
                    well = not comparison.reasons
                    _tell(comparison, as_json=as_json)
                    if left != 0:
                        time.sleep(every)
        except UnavailableError as error:
            if left == 0:
                raise
            errors.print(f"[yellow]not read:[/] {escape(str(error))}", soft_wrap=True)
            time.sleep(every)
    return well


def _tell(comparison: Round, *, as_json: bool) -> None:
    from abs_audit.render import show_round

    if as_json:
        sys.stdout.write(json.dumps(comparison.to_dict()) + "\n")
        sys.stdout.flush()
    else:
        show_round(comparison, people)
