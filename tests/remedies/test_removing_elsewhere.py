"""What `abs job remove` leaves in Kafka, in a bucket and in a table: rows, and what it has named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlencode

import pytest

from abs_clients.s3.location import OURS
from abs_clients.s3.objects import Objects
from abs_core.births import parent
from abs_core.errors import ProtocolError
from abs_core.model import JobState, NotedToken, job_key
from abs_services import KafkaService, S3Service
from abs_sinks.door import format_named
from abs_sinks.kafka.register.store import KafkaRegister
from abs_sinks.kafka.wal import ledger_key
from abs_sinks.s3.testing import FolderHarness
from abs_testing.case import JOB, Case, rows
from abs_testing.harness import Harness
from tests.kit.command import abs_
from tests.kit.kafka import TopicHarness
from tests.kit.kafka_modes import open_variant
from tests.kit.kafka_reading import messages
from tests.sinks.delta import harness as delta
from tests.sinks.iceberg import harness as iceberg

pytestmark = pytest.mark.services

FIRST, TOKEN, OPEN = rows(0, 3), rows(10, 2), rows(20, 2)


@dataclass
class Place:
    """One target, its address for commands, and all that is there besides rows."""

    harness: Harness
    where: list[str]
    left: Callable[[], set[str]]


def cells(harness: TopicHarness) -> set[str]:
    """The keys of the register's topic that have a value, by a consumer that knows no register."""
    newest: dict[str, bytes | None] = {}
    for message in messages(
        {"bootstrap.servers": harness.bootstrap}, harness.options.registertopic
    ):
        newest[(message.key() or b"").decode()] = message.value()
    return {key for key, value in newest.items() if value is not None}


@contextmanager
def in_kafka(kafka: KafkaService, way: str, folder: Path) -> Iterator[Place]:
    kafka.start()
    with open_variant(kafka.bootstrap, way) as harness:

        def left() -> set[str]:
            return {*cells(harness), *harness.leftovers(JOB)}

        url = f"kafka://{kafka.bootstrap}/{harness.options.registertopic}"
        where = ["--url", url]
        if way == "wal":  # the log is an option of the sink
            pairs = ", ".join(f'"{name}" = "{value}"' for name, value in harness.given.items())
            file = folder / "sinks.toml"
            file.write_text(
                f'job = "{JOB}"\nregister = "it"\n[sinks.it]\nformat = "abs-kafka"\n'
                f"options = {{ {pairs} }}\n"
            )
            where = ["--sinks", str(file)]
        yield Place(harness, where, left)


@contextmanager
def in_bucket(s3: S3Service, prefix: str, protocol: str) -> Iterator[Place]:
    s3.start()
    given = {"endpoint": s3.endpoint, "region": s3.region, "protocol": protocol}
    harness = FolderHarness(f"s3://{s3.bucket}/{prefix}", given)

    def left() -> set[str]:
        options = harness.options
        ours = Objects(options.bucket).list(options.path.key(OURS, ""))
        return {*(each.key.partition(OURS)[2] for each in ours), *harness.uploads()}

    url = f"{harness.path}?{urlencode({'endpoint': s3.endpoint, 'region': s3.region})}"
    yield Place(harness, ["--url", url], left)


@contextmanager
def in_table(folder: Path, kind: str) -> Iterator[Place]:
    if kind == "delta":
        table = delta.TableHarness(str(folder), {})
        yield Place(table, ["--url", f"delta:{table.options.path}"], lambda: besides(folder))
        return
    other = iceberg.TableHarness(folder, None, {})
    named = urlencode({f"catalog.{name}": value for name, value in other.catalog.items()})
    yield Place(other, ["--url", f"iceberg:{other.name}?{named}"], lambda: besides(folder))


def besides(folder: Path) -> set[str]:
    """Files that are neither a table's log nor rows."""
    files = (path for path in folder.rglob("*") if path.is_file())
    logs = ("_delta_log", "metadata", "catalog.db")
    return {
        str(path.relative_to(folder)).partition("_abs")[2] or path.name
        for path in files
        if not set(logs) & {*path.parts} and path.suffix != ".parquet"
    }


WAYS = [
    "kafka wal",
    "s3 2pc",
    "table delta",
    *(
        pytest.param(way, marks=pytest.mark.campaign)
        for way in ("kafka 2pc", "kafka idempotent", "s3 wal", "table iceberg")
    ),
]

BEGUN = {"table delta", "table iceberg"}
"""Where the files of locks stay."""


@pytest.fixture(params=WAYS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Place]]:
    system, way = request.param.split()
    made = {
        "kafka": lambda: in_kafka(request.getfixturevalue("kafka"), way, tmp_path),
        "s3": lambda: in_bucket(
            request.getfixturevalue("store"), request.getfixturevalue("prefix"), way
        ),
        "table": lambda: in_table(tmp_path, way),
    }
    with made[system]() as opened:
        yield request.param, opened


def test_a_job_that_never_comes_back_leaves_its_rows_and_what_is_named(
    place: tuple[str, Place],
) -> None:
    name, at = place
    with Case(at.harness) as case:
        run = case.run(checkpoint="file://host/checkpoint")
        run.epoch(0, FIRST)
        token = case.run(job_key(JOB, "t1"))
        token.epoch(0, TOKEN)
        state = token.state()
        noted = (NotedToken("t1", state.register, 1, parent.now()),)
        above = JobState("ab" * 8, parent.parent_key(JOB), state.target, "tokens", 1, "tokens")
        run.store.compare_and_set(above.job, None, replace(above, tokens=noted))
        killed = case.run()
        killed.tasks(1, OPEN)
        assert any("job@t1" in each for each in at.left()), "the look does not see registers"
        done = abs_("job", "remove", JOB, *at.where, "--yes")
        assert done.exit_code == 0, (done.output, done.exception)
        told = " ".join(done.output.split())
        assert "kept the checkpoint file://host/checkpoint" in told
        left = {key for key in at.left() if not key.endswith("+winners")}
        assert {Path(each).suffix for each in left} == ({".lock"} if name in BEGUN else set()), left
        for each in left:
            assert Path(each).name in told, f"{each} is not named: {told}"
        words = {"kafka": "transactional ids", "table": "kept abs-", "s3": ""}[name.split()[0]]
        assert words in told
        case.holds(FIRST, TOKEN, when="after the job was removed")


@pytest.mark.campaign
@pytest.mark.parametrize("segment", [False, True], ids=["no segment", "a segment"])
def test_a_ledger_goes_with_its_job_unless_a_segment_is_left_that_could_be_sent_without_it(
    kafka: KafkaService, segment: bool
) -> None:
    kafka.start()
    with open_variant(kafka.bootstrap, "wal-foreign-register") as harness, Case(harness) as case:
        run = case.run()
        run.epoch(0, FIRST)
        if segment:
            run.tasks(1, OPEN)
        kafka_format = format_named("abs-kafka")
        [line, *_] = kafka_format.forget(replace(harness.options, wal=None), run.state(), False)
        assert "kept the ledger" in line, "where the segments are is not known"
        told = kafka_format.forget(harness.options, run.state(), letters=False)
        left = KafkaRegister(harness.options).load_text(ledger_key(JOB)) is not None
        assert (left, f"kept the ledger {JOB}+wal: 1 segments" in told[0]) == (segment, segment)
        assert f"{JOB}+rehearsal" in "".join(told) or "such as" in told[1]


@pytest.mark.campaign
def test_a_job_whose_register_readers_need_is_not_removed(store: S3Service, prefix: str) -> None:
    with in_bucket(store, prefix, "idempotent") as at, Case(at.harness) as case:
        case.run().epoch(0, FIRST)
        before = at.left()
        done = abs_("job", "remove", JOB, *at.where, "--yes")
        assert isinstance(done.exception, ProtocolError)
        assert "names the files that readers use" in str(done.exception)
        assert at.left() == before
        case.run().epoch(1, OPEN)
        case.holds(FIRST, OPEN, when="after a removal that was refused")
