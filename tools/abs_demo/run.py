"""The demo, from the first file to the audit's report."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
from rich.console import Console

from abs_audit import AuditSettings, Files, Relation, audit, by_epoch
from abs_audit.checkpoint import epochs_in
from abs_audit.others import TargetOfOthers
from abs_audit.postgres import PostgresTable
from abs_chaos.aim import Aim
from abs_chaos.killing import Killing
from abs_chaos.outcome import Outcome
from abs_chaos.process import JobProcess
from abs_clients.postgres.address import Address
from abs_clients.postgres.name import TableName
from abs_demo.flights import KEY, SCHEMA, read_flights, write_files
from abs_demo.hops import TABLE, Places, Route, further_places, prepare_lake
from abs_demo.job import JobSettings
from abs_demo.picture import Picture
from abs_demo.settings import FILES_PER_EPOCH, DemoSettings, Result
from abs_demo.watch import database_errors, watching
from abs_services import chosen_provider, fresh_database, in_database, services
from abs_services.databases import create_database
from abs_services.lasting import bring_up
from abs_services.reaper import REAPER
from abs_sinks.door import format_named

SETTLE_S = 10.0
"""How long the audit waits for a target that is still in doubt."""
FAILURES = 4
"""Spark gives some of its Python workers 10 seconds to start, and has no setting for that."""


def run(settings: DemoSettings, console: Console, places: Places) -> Result:
    """Write the flights by the engine, kill the job by schedule, and audit the table.

    Takes a minute or two. All started processes have ended on return. Raises UnavailableError if
    the job ends early, or makes no progress.
    """
    files_per_epoch = FILES_PER_EPOCH[settings.route]
    job = JobSettings(places, settings.protocol, files_per_epoch, settings.route, settings.engine)
    rows = write_files(read_flights(), job.input, days=settings.days)
    job.scratch.mkdir()
    url = places.url
    create_table(url, unique=settings.protocol == "idempotent")
    with watching(settings.protocol, url, job.checkpoint, settings.engine) as watch:
        log = job.places.folder / "job.log"
        log.touch()

        def start() -> JobProcess:
            return JobProcess(job.command(), job.environment(), job.scratch, log)

        with Picture(settings, watch, console, rows, log) as picture:
            aim = Aim(settings.planned)
            killing = Killing(start, aim, watch, picture, log, failures=FAILURES)
            killing.run()
            seconds = picture.elapsed
            picture.ended(watch.settled())
        frontier = watch.look().finished
    table = PostgresTable(Address.parse(url), TableName.parse(TABLE))
    targets: dict[str, Relation] = {"table": table}
    if settings.route is not Route.DIRECT:
        targets |= further_targets(places)
    epochs = epochs_in(str(job.checkpoint)) if settings.route.is_one_query else {}
    files, compared = Files((str(job.input),)), AuditSettings(key=KEY, settle=SETTLE_S)
    reports = {
        name: audit(files, target, compared, epochs=epochs) for name, target in targets.items()
    }
    findings = tuple(by_epoch(reports, frontier))
    outcome = Outcome(
        seed=settings.seed,
        asked=settings.kills,
        events=killing.kills,
        failures=killing.failures,
        job_seconds=seconds,
        report=reports.pop("table"),
    )
    return Result(settings, rows, outcome, reports, findings)


@contextlib.contextmanager
def temporary_places(settings: DemoSettings) -> Iterator[Places]:
    """Places that are deleted afterwards with their servers, also if this process is killed.

    Raises ConfigError if a requirement is missing.
    """
    settings.engine.check_machine()
    with contextlib.ExitStack() as stack:
        made = tempfile.TemporaryDirectory(prefix="abs-demo-", ignore_cleanup_errors=True)
        folder = Path(stack.enter_context(made))
        REAPER.register(folder)
        server = stack.enter_context(services().postgres())
        places = Places(folder, stack.enter_context(fresh_database(server)))
        if settings.route is not Route.DIRECT:
            environment = dict(stack.enter_context(services().kafka()).env)
            if settings.route is not Route.LAKE:
                environment |= stack.enter_context(services().s3()).env
            places = further_places(places, environment)
        if settings.route is Route.LAKE:
            prepare_lake(places)
        yield places


def lasting_places(settings: DemoSettings) -> Places:
    """Places that stay: a new database in the server of ``abs up postgres``, and so on.

    Raises ConfigError if a requirement is missing.
    """
    settings.engine.check_machine()
    provider = chosen_provider()
    env = bring_up("postgres", provider).running.env
    url, name = env["ABS_POSTGRES_URL"], f"abs_demo_{secrets.token_hex(4)}"
    with database_errors():
        create_database(env["ABS_POSTGRES_ADMIN_URL"], name, owner_of=url)
    places = Places(Path(tempfile.mkdtemp(prefix="abs-demo-")), in_database(url, name))
    if settings.route is Route.DIRECT:
        return places
    environment = dict(bring_up("kafka", provider).running.env)
    if settings.route is Route.LAKE:
        prepare_lake(places)
    else:
        environment |= bring_up("s3", provider).running.env
    return further_places(places, environment)


def create_table(url: str, *, unique: bool) -> None:
    """Create the table, without a constraint that would hide a duplicate unless upserts need it.

    Raises UnavailableError if the database does not answer.
    """
    types = {pa.int32(): "integer", pa.string(): "text", pa.timestamp("us", "UTC"): "timestamptz"}
    columns = [f"{field.name} {types[field.type]}" for field in SCHEMA]
    if unique:
        columns.append(f"PRIMARY KEY ({', '.join(KEY)})")
    with database_errors(), psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {TABLE} ({', '.join(columns)})".encode())


def further_targets(places: Places) -> dict[str, Relation]:
    """Topic and bucket or tables of the lake."""
    # Their clients come with extras that a direct demo does without.
    from abs_audit.kafka import KafkaTopic

    topic = KafkaTopic(places.bootstrap, places.topic)
    if not places.path:
        named = {name: format_named(name_) for name, (name_, _) in places.lake.items()}
        return {"topic": topic} | {
            name: TargetOfOthers(format_, format_.parse(places.lake[name][1]))
            for name, format_ in named.items()
        }
    from abs_audit.s3 import S3Files

    bucket, _, prefix = places.path.removeprefix("s3://").partition("/")
    endpoint, region = places.store["endpoint"], places.store["region"]
    return {
        "topic": topic,
        "bucket": S3Files(bucket, prefix, endpoint, region, secrets=places.secrets),
    }
