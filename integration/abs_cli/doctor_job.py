"""``abs doctor --sinks``: checks every sink of a job, and their combination."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from rich.markup import escape

from abs_cli.doctor_checks import (
    Looked,
    document,
    fails,
    listed,
    look,
    show,
    show_findings,
)
from abs_cli.output import people, print_json
from abs_cli.sinksfile import FiledSink, SinksFile
from abs_cli.sites import Site
from abs_sinks.door import Around
from abs_spark.foreach.targets import together
from abs_spark.target import Target, commit_at_once


def report_job(path: Path, tasks: int | None, *, as_json: bool) -> bool:
    """Check every sink of a job, print the findings, and return whether the job would run.

    Raises:
        ConfigError: the file, or an option of a sink, cannot be read.
        TargetError: a system cannot be queried.
    """
    job = SinksFile.read(path)
    sites = {sink.name: Site.of(sink) for sink in job.sinks}
    sinks = [(name, site.format, site.options) for name, site in sites.items()]
    at_once = commit_at_once([Target(kind, given, pa.schema([])) for _, kind, given in sinks])
    looked = {sink.name: _look(sink, job, tasks, composes=not at_once) for sink in job.sinks}
    shared = together(sinks, tasks, at_once=at_once)
    if as_json:
        named = {name: document(found) for name, found in looked.items()}
        print_json({"sinks": named, "findings": listed(shared)})
    else:
        for name, found in looked.items():
            people.print(f"[bold]{escape(name)}[/]")
            show(found)
        people.print("[bold]all sinks together[/]")
        show_findings(shared)
        people.print("one decision: after recovery an epoch is in all targets or in none")
    return not any(map(fails, [shared, *(found.findings for found in looked.values())]))


def _look(sink: FiledSink, job: SinksFile, tasks: int | None, *, composes: bool) -> Looked:
    given = dict(sink.options) if job.job is None else {**sink.options, "job": job.job}
    own_register = sink.name == job.register
    return look(sink.format, given, Around(None, tasks, composes, own_register))
