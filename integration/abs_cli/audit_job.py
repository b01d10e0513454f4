"""``abs audit --sinks``: audits every target of a job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from abs_cli.output import errors, people, print_json
from abs_cli.places import options_of, place_of
from abs_cli.sinksfile import FiledSink, SinksFile
from abs_core.errors import ConfigError

if TYPE_CHECKING:
    from abs_audit import Relation

_SINK = "sink:"


def report_job(path: Path, *, as_json: bool, **how: Any) -> bool:
    """Audit every sink with an ``audit`` in the file, print it, and return whether all are clean.

    A sink without an audit is not clean, nor is a job with a decided and unfinished epoch: it may
    be committed in one target and not in another yet. ``how`` are settings of ``abs_audit.audit``.

    Raises:
        ConfigError: the file, or the settings of an audit in it, cannot be read.
        TargetError: a side cannot be read.
    """
    import abs_audit
    from abs_audit.ddl import schema_of
    from abs_audit.render import show

    job = SinksFile.read(path)
    found = {}
    for sink in job.sinks:
        if "expected" not in sink.audit:
            continue
        schema = sink.audit.get("schema")
        with errors.status(f"reading both sides of {escape(sink.name)} ..."):
            found[sink.name] = abs_audit.audit(
                _expected(job, sink),
                target_of(sink),
                key=_names(sink, "key") or (),
                columns=_names(sink, "columns"),
                schema=None if schema is None else schema_of(schema),
                **how,
            )
    skipped = [sink.name for sink in job.sinks if sink.name not in found]
    undone = _open_epochs(job)
    if as_json:
        reports = {name: report.to_dict() for name, report in found.items()}
        print_json({"sinks": reports, "not_audited": skipped, "open_epochs": undone})
    else:
        for name, report in found.items():
            people.print(f"[bold]{escape(name)}[/]")
            show(report, people)
        if skipped:
            people.print(f"[red]not audited[/] {escape(', '.join(skipped))}")
        for epoch in undone:
            people.print(f"[red]decided but not finished[/] epoch {epoch}")
    return all(report.clean for report in found.values()) and not skipped and not undone


def target_of(sink: FiledSink) -> Relation:
    """The sink's target as its readers see it."""
    options = options_of(sink)
    match sink.format:
        case "abs-postgres":
            from abs_audit import PostgresTable

            return PostgresTable(options.address, options.dbtable, options.stateschema)
        case "abs-kafka":
            from abs_audit.kafka import KafkaTopic
            from abs_clients.kafka.configs import access_settings

            if options.topic is None:
                raise ConfigError(
                    f"A column names the topics that sink {sink.name} writes to.",
                    remedy="audit each topic with `abs audit --actual kafka://host:port/topic`.",
                )
            settings = access_settings(options.kafka)
            servers = options.kafka.bootstrap
            return KafkaTopic(servers, options.topic, "json", winners=None, settings=settings)
        case _:
            from abs_audit.s3 import S3Files

            path = options.path
            return S3Files(
                path.bucket, path.folder.rstrip("/"), options.endpoint, options.region, None
            )


def _expected(job: SinksFile, sink: FiledSink) -> Relation:
    import abs_audit

    where = sink.audit["expected"]
    if not where.startswith(_SINK):
        table, null = sink.audit.get("expected_table"), sink.audit.get("null")
        return abs_audit.relation([where], table=table, null=null)
    others = {other.name: other for other in job.sinks}
    name = where.removeprefix(_SINK)
    if name not in others:
        raise ConfigError(
            f"The audit of sink {sink.name} expects the records of sink {name!r}, which is not in the "
            "file.",
            remedy=f"name one of {', '.join(others)}.",
        )
    return target_of(others[name])


def _names(sink: FiledSink, what: str) -> list[str] | None:
    names = [name.strip() for name in sink.audit.get(what, "").split(",") if name.strip()]
    return names or None


def _open_epochs(job: SinksFile) -> list[int]:
    if job.job is None:
        return []
    (register,) = [place_of(sink).register for sink in job.sinks if sink.name == job.register]
    stored = register.load(job.job)
    return [] if stored is None else [decision.epoch for decision in stored.state.open]
