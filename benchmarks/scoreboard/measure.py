"""Runs a contestant without kills and with them, by ``abs_chaos``, and audits its targets."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from psycopg.conninfo import conninfo_to_dict
from pyarrow import parquet

from abs_audit import AuditSettings, Relation, audit, relation
from abs_chaos.killing import Killed, Killing
from abs_chaos.moments import Moment
from abs_chaos.outcome import Outcome, percentile
from abs_chaos.places import fresh_bucket, fresh_topic
from abs_chaos.run import ChaosSettings, kill_to_end
from abs_core.errors import AbsError
from abs_services import KafkaService, PostgresService, S3Service, fresh_database, services
from benchmarks.scoreboard.contestants import Contestant, States
from benchmarks.scoreboard.job import NAMES, make_namespace
from tests.roots import FOLDERS
from tests.spark.jobs.session import CONF

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FILES_PER_EPOCH = 2
EPOCHS_PER_KILL = 16
SCHEMA = pa.schema([("id", pa.int64()), ("word", pa.string()), ("amount", pa.float64())])


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of one run.

    Args:
        epochs: without kills. With kills there is input for each of them, and twice as much if a
            contestant is through before its last kill.
        rows: of an epoch.
        every_s: average time between a start and its SIGKILL. Every second kill then waits until the
            sink has written an epoch that Spark has not noted: there a repeated write shows.
        seed: of the kills. With this one each comes some seconds after Spark has started.
    """

    epochs: int = 48
    rows: int = 10_000
    kills: int = 8
    every_s: float = 10.0
    seed: int = 5

    def with_kills(self) -> Sizes:
        """Of a run with them: a start that is killed after some seconds gets some epochs written."""
        return replace(self, epochs=max(self.epochs, EPOCHS_PER_KILL * self.kills))


@dataclass(frozen=True, slots=True)
class Servers:
    """Those that every contestant writes to, and the Python that runs its job."""

    python: Path
    postgres: PostgresService
    kafka: KafkaService
    s3: S3Service


@contextlib.contextmanager
def started(python: Path) -> Iterator[Servers]:
    """Servers of this run's own; ended afterwards."""
    found = services()
    with found.postgres() as postgres, found.kafka() as kafka, found.s3() as s3:
        yield Servers(python, postgres, kafka, s3)


@dataclass(frozen=True, slots=True)
class Row:
    """A contestant's row.

    The wrong rows are those of the run with kills, and None where it did not end: ``failed`` says why.

    Args:
        plain: rows a second without kills, from the first noted epoch to the last.
        killed: rows a second that are right, from the first noted epoch to the first one after the
            last kill: so it does not matter how much input is left then.
        asked: so many kills were to be.
        between: those that hit between the sink's write and Spark's note.
    """

    name: str
    states: str
    docs: str
    plain: float | None = None
    killed: float | None = None
    kills: int = 0
    asked: int = 0
    between: int | None = None
    recovery_p50_s: float | None = None
    recovery_p99_s: float | None = None
    missing: int | None = None
    doubled: int | None = None
    wrong: int | None = None
    left_behind: int | None = None
    failed: str = ""

    @property
    def kept(self) -> bool | None:
        """Whether what the sink states is what was found; its unfinished writes are told apart.

        None: nothing broke it, but there were fewer kills than asked, or none of them in that moment.
        """
        if self.failed or self.missing or self.wrong:
            return False
        if self.doubled and self.states in (States.EXACTLY, States.IDEMPOTENT):
            return False
        few = self.kills < self.asked or (self.between or 0) < self.asked // 2
        return None if few else True


class Silent:
    """A picture of nothing."""

    def update(self, *sights: object, aiming: bool) -> None:
        """Nothing."""

    def killed(self, *told: object) -> None:
        """Nothing."""


def measure(contestant: Contestant, servers: Servers, sizes: Sizes) -> Row:
    """The contestant's row."""
    row = Row(contestant.name, contestant.states.value, contestant.docs, asked=sizes.kills)
    try:
        plain, found = _run(contestant, servers, sizes, kills=0)
        if any(found.values()):
            return replace(row, failed=f"wrong without kills: {found}")
        killed, ran, between = plain, sizes, 0
        first = sizes.with_kills()
        for ran in (first, replace(first, epochs=2 * first.epochs)) if sizes.kills else ():
            killed, found = _run(contestant, servers, ran, kills=sizes.kills)
            between = sum(each.found is Moment.COMMITTED for each in killed.kills)
            if len(killed.kills) >= sizes.kills and between >= sizes.kills // 2:
                break
    except AbsError as error:
        return replace(row, failed=error.what.splitlines()[-1])
    times = [each.recovered_s for each in killed.kills if each.recovered_s is not None]
    wrong = found["changed"] + found["unexpected"]
    bad = found["missing"] + found["doubled"] + wrong
    return replace(
        row,
        plain=rate(plain.epochs, plain.kills, sizes),
        killed=rate(
            killed.epochs, killed.kills, sizes, max(0.0, 1 - bad / (ran.epochs * ran.rows))
        ),
        kills=len(killed.kills),
        between=between,
        recovery_p50_s=percentile(times, 0.5),
        recovery_p99_s=percentile(times, 0.99),
        missing=found["missing"],
        doubled=found["doubled"],
        wrong=wrong,
        left_behind=found["left_behind"],
    )


def rate(
    ended: Sequence[tuple[float, int]], kills: Sequence[Killed], sizes: Sizes, right: float = 1.0
) -> float | None:
    """Rows a second until the first epoch after the last kill, or the last one.

    Args:
        ended: when Spark had noted which epoch.
        right: this share of the rows is right.
    """
    struck = kills[-1].at_seconds if kills else float("inf")
    began, first = ended[0]
    end, last = next((noted for noted in ended if noted[0] > struck), ended[-1])
    return None if first == last else round(right * (last - first) * sizes.rows / (end - began), 1)


def _run(
    contestant: Contestant, servers: Servers, sizes: Sizes, *, kills: int
) -> tuple[Killing, dict[str, int]]:
    """One run to its end, and the figures of all its targets together."""
    with places(contestant, servers, sizes) as (given, targets, environment):
        folder = Path(given["work"])
        killing = kill_to_end(
            ChaosSettings(
                [str(servers.python), str(HERE / "job.py")],
                folder / "log",
                seed=sizes.seed,
                kills=kills,
                checkpoint=Path(given["checkpoint"]),
                every_s=sizes.every_s,
                moment=Moment.COMMITTED,
                environment={**environment, "ABS_SCOREBOARD": json.dumps(given)},
            ),
            Silent(),
        )
        compared = AuditSettings(key=("id",), schema=SCHEMA, settle=10.0, samples=0)
        expected = relation([given["input"]])
        found: dict[str, int] = {}
        for target in targets:
            report = audit(expected, target, compared)
            one = Outcome(sizes.seed, kills, killing.kills, killing.failures, 0.0, report).found
            found = {what: found.get(what, 0) + number for what, number in one.items()}
        if given["exports"]:
            found["left_behind"] += int(Path(given["left"]).read_text())
    return killing, found


@contextlib.contextmanager
def places(
    contestant: Contestant, servers: Servers, sizes: Sizes
) -> Iterator[tuple[dict[str, Any], list[Relation], Mapping[str, str]]]:
    """The job's settings, the relations to audit, and the job's environment; deleted afterwards."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="abs-scoreboard-"))
        url = stack.enter_context(fresh_database(servers.postgres))
        topic = stack.enter_context(fresh_topic(servers.kafka))
        bucket = stack.enter_context(fresh_bucket(servers.s3))
        stack.enter_context(_variables(bucket.environment))
        make_input(Path(folder, "input"), sizes)
        unique = contestant.way == "merge" or contestant.protocol == "idempotent"
        make_tables(url, unique=unique)
        winners = "?winners=true" if contestant.protocol == "idempotent" else ""
        seen = f"{folder}/seen"
        s3 = f"s3://{bucket.name}/out?endpoint={bucket.endpoint}&region={bucket.region}"
        every = {
            "postgres": lambda: relation([url], table=NAMES["table"]),
            "kafka": lambda: relation([f"{topic.url}{winners}"]),
            "s3": lambda: relation([s3]),
            "seen": lambda: relation([seen]),
        }
        at = conninfo_to_dict(url)
        user = f"user={at['user']}&password={at['password']}"
        given = {
            **NAMES,
            "way": contestant.way,
            "protocol": contestant.protocol,
            "conf": {**CONF, "spark.local.dir": f"{folder}/scratch"}
            | ({"spark.jars.packages": contestant.jar} if contestant.jar else {}),
            "work": folder,
            "input": f"{folder}/input",
            "checkpoint": f"{folder}/checkpoint",
            "files": FILES_PER_EPOCH,
            "folder": f"{folder}/table",
            "seen": seen,
            "left": f"{folder}/left",
            "exports": "seen" in contestant.targets,
            "url": url,
            "jdbc": f"jdbc:postgresql://{at['host']}:{at['port']}/{at['dbname']}?{user}",
            "bootstrap": topic.bootstrap,
            "topic": topic.name,
            "path": f"s3://{bucket.name}/out",
            "endpoint": bucket.endpoint,
            "region": bucket.region,
        }
        if contestant.way == "abs_iceberg":
            make_namespace(given)
        # The job's Spark is that of its own Python, not one that this process may have started.
        inherited = {name: text for name, text in os.environ.items() if name != "SPARK_HOME"}
        environment = {
            **inherited,
            "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("", *FOLDERS)),
            "PYSPARK_PYTHON": str(servers.python),
            "PYSPARK_DRIVER_PYTHON": str(servers.python),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        yield given, [every[target]() for target in contestant.targets], environment


@contextlib.contextmanager
def _variables(given: Mapping[str, str]) -> Iterator[None]:
    """Environment variables of this process, for the audit of a bucket."""
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def make_input(folder: Path, sizes: Sizes) -> None:
    """Parquet files of all epochs; Spark takes them by their time of modification."""
    folder.mkdir()
    share = sizes.rows // FILES_PER_EPOCH
    for number in range(sizes.epochs * FILES_PER_EPOCH):
        ids = range(number * share, (number + 1) * share)
        words = [f"{id_:012d}-{secrets.token_hex(16)}" for id_ in ids]
        table = pa.table([list(ids), words, [id_ / 100 for id_ in ids]], schema=SCHEMA)
        file = folder / f"{number:05d}.parquet"
        parquet.write_table(table, file)
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def make_tables(url: str, *, unique: bool) -> None:
    """The target, without a constraint that would hide a doubled row unless the way needs one."""
    columns = "(id bigint{}, word text, amount double precision)"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            f"CREATE TABLE {NAMES['table']} {columns.format(' PRIMARY KEY' if unique else '')}".encode()
        )
        connection.execute(f"CREATE TABLE {NAMES['stage']} {columns.format('')}".encode())


def to_dict(row: Row) -> dict[str, Any]:
    """For the result file."""
    return {**asdict(row), "kept": row.kept}
