"""``abs audit --sinks``: audits every target of a job."""

from __future__ import annotations

import contextlib
import csv
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from abs_cli.output import errors, people
from abs_cli.sinksfile import FiledSink, SinksFile
from abs_cli.sites import Site
from abs_core.errors import AbsError, ConfigError

if TYPE_CHECKING:
    from abs_audit import AuditSettings, EpochFound, Relation, Report
    from abs_core.model import JobState

_SINK = "sink:"
_TELL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class JobReport:
    """What audits of a job's targets have found.

    Args:
        reports: by the sink's name.
        not_audited: sinks without an ``audit`` in the file.
        open_epochs: decided and not finished: each may be in one target and not in another yet.
        strict: a sink without an audit is not clean.
    """

    reports: Mapping[str, Report]
    not_audited: Sequence[str]
    open_epochs: Sequence[int]
    epochs: Sequence[EpochFound]
    strict: bool

    @property
    def failing(self) -> Sequence[str]:
        """Sinks that are not clean because they were not audited; all, where none was."""
        return self.not_audited if self.strict or not self.reports else ()

    @property
    def clean(self) -> bool:
        wrong = (*self.failing, *self.open_epochs, *(e for e in self.epochs if e.shortcoming))
        return not wrong and all(report.clean for report in self.reports.values())

    @property
    def shortcomings(self) -> list[str]:
        """Why it is not clean, for people."""
        return [
            *(f"{name}: {why}" for name, report in self.reports.items() for why in report.reasons),
            *(f"{name}: not audited" for name in self.failing),
            *(f"epoch {epoch} is decided and not finished" for epoch in self.open_epochs),
            *(entry.shortcoming for entry in self.epochs if entry.shortcoming),
        ]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "sinks": {name: report.to_dict() for name, report in self.reports.items()},
            "not_audited": list(self.not_audited),
            "open_epochs": list(self.open_epochs),
            "epochs": [entry.to_dict() for entry in self.epochs],
        }

    def show(self) -> None:
        """Print it."""
        from abs_audit.render import show, show_epochs

        for name, report in self.reports.items():
            people.print(f"[bold]{escape(name)}[/]")
            show(report, people)
        if self.epochs:
            show_epochs(self.epochs, people)
        if self.not_audited:
            colour = "red" if self.failing else "yellow"
            names = escape(", ".join(self.not_audited))
            people.print(f"[{colour}]not audited[/] {names}: without audit = ... in the file")
        for epoch in self.open_epochs:
            people.print(f"[red]decided but not finished[/] epoch {epoch}")


def audit_job(
    job: SinksFile, settings: AuditSettings, *, by_epoch: bool, strict: bool
) -> JobReport:
    """Audit every sink with an ``audit`` in the file.

    Args:
        settings: for what a sink's own ``audit`` leaves open.
        by_epoch: also look for each epoch of the query's checkpoint in all targets.

    Raises:
        ConfigError: the settings of an audit in the file, or the checkpoint, cannot be read.
        TargetError: a side cannot be read.
    """
    from abs_audit import by_epoch as compared
    from abs_audit.checkpoint import epochs_in

    records = epochs_in(_checkpoint(job)) if by_epoch else {}
    reports = {
        sink.name: _audit(job, sink, settings, records)
        for sink in job.sinks
        if "expected" in sink.audit
    }
    state = _state(job)
    frontier = None if state is None else state.frontier
    there = () if state is None else state.sinks
    since = {one.name: one.since for one in there if one.until is None}
    return JobReport(
        reports,
        [sink.name for sink in job.sinks if sink.name not in reports],
        [] if state is None else [decision.epoch for decision in state.open],
        compared(reports, frontier, since),
        strict,
    )


def _audit(
    job: SinksFile, sink: FiledSink, settings: AuditSettings, records: Mapping[int, Relation]
) -> Report:
    from abs_audit import audit

    with progress_shown(f"{escape(sink.name)}: "):
        own = _settings(sink, settings)
        try:
            return audit(_expected(job, sink), _with_letters(job, sink), own, epochs=records)
        except AbsError as error:
            error.what = f"Sink {sink.name}: {error.what}"
            raise


@contextlib.contextmanager
def progress_shown(of: str = "") -> Iterator[None]:
    """Show on a terminal how far the audit inside is.

    Args:
        of: what is audited, in rich's markup; before the rest.
    """
    from abs_audit.progress import Meter, metered

    meter, ended = Meter(), threading.Event()
    with metered(meter), errors.status(f"{of}reading both sides ...") as status:

        def tell() -> None:
            while not ended.wait(_TELL_SECONDS):
                status.update(f"{of}{meter.now()} ...")

        teller = threading.Thread(target=tell, name="abs-audit-progress", daemon=True)
        teller.start()
        try:
            yield
        finally:
            ended.set()
            teller.join()


def compared_by(key: str, columns: str, schema: str | None) -> dict[str, Any]:
    """Settings of an audit, from text: names are separated by commas, or in double quotes."""
    from abs_audit.ddl import schema_of

    return {
        "key": _names(key),
        "columns": _names(columns) or None,
        "schema": None if schema is None else schema_of(schema),
    }


def target_of(sink: FiledSink) -> Relation:
    """The sink's target as its readers see it."""
    from abs_audit import side_of

    site = Site.of(sink)
    return side_of(site.format).of(site.options)


def _with_letters(job: SinksFile, sink: FiledSink) -> Relation:
    """The sink's target, with its dead letters where its option ``deadletter`` keeps them."""
    from abs_audit import side_of
    from abs_audit.buried import WithDeadLetters
    from abs_sinks.options import ToSink

    site, target = Site.of(sink), target_of(sink)
    place = getattr(site.options, "deadletter", None)
    if place is None:
        return target
    keeper = (
        Site.of(_named(job, place.name, f"keeps dead letters of {sink.name}"))
        if isinstance(place, ToSink)
        else site
    )
    places = keeper.format.letters()
    if places is None:
        raise ConfigError(
            f"{keeper.format.name} keeps no dead letters that can be read here.",
            remedy=f"leave the audit of {sink.name} out, and compare its target by hand.",
        )
    return WithDeadLetters(
        target, places.of(keeper.options), side_of(site.format).refused_by(site.options)
    )


def _named(job: SinksFile, name: str, role: str) -> FiledSink:
    """Another sink of the file; raises ConfigError if it is not there."""
    others = {other.name: other for other in job.sinks}
    if name not in others:
        raise ConfigError(
            f"The sink {name!r}, which {role}, is not in the file.",
            remedy=f"name one of {', '.join(others)}.",
        )
    return others[name]


def _expected(job: SinksFile, sink: FiledSink) -> Relation:
    import abs_audit

    where = sink.audit["expected"]
    if not where.startswith(_SINK):
        table, null = sink.audit.get("expected_table"), sink.audit.get("null")
        return abs_audit.relation([where], table=table, null=null)
    role = f"has the records that the audit of {sink.name} expects"
    return target_of(_named(job, where.removeprefix(_SINK), role))


def _settings(sink: FiledSink, settings: AuditSettings) -> AuditSettings:
    options = compared_by(
        sink.audit.get("key", ""), sink.audit.get("columns", ""), sink.audit.get("schema")
    )
    return replace(settings, **{name: value for name, value in options.items() if value})


def _names(text: str) -> list[str]:
    """Split at commas; a name that contains one is in double quotes."""
    return [name.strip() for name in next(csv.reader([text], skipinitialspace=True), []) if name]


def _checkpoint(job: SinksFile) -> str:
    where = Site.of(job.sinks[0]).options.common.checkpoint
    if job.job is None or where is None:
        raise ConfigError(
            "The file does not say which epochs there are.",
            remedy="add job = ... and checkpointLocation = ..., or leave out --epochs.",
        )
    return str(where)


def _state(job: SinksFile) -> JobState | None:
    if job.job is None:
        return None
    (register,) = [Site.of(sink).register for sink in job.sinks if sink.name == job.register]
    stored = register.load(job.job)
    return None if stored is None else stored.state
