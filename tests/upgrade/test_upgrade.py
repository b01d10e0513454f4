"""A job of an older release is taken over by today's code, and finished: exactly once.

The old release itself runs, from a zip of its packages, and kills itself where an epoch is decided and
not committed, half committed, or pre-committed and not decided. Today's code then starts the job as a
user does after ``pip install -U``: same target, same register, same options. The target is looked at.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest

from abs_core.crash import CrashPoint
from abs_core.registers import FileRegister
from abs_services import KafkaService, PostgresService, S3Service, fresh_database
from abs_sinks.postgres.testing import VARIANTS, open_table
from abs_sinks.s3.testing import open_folder
from abs_testing.case import within
from abs_testing.harness import Harness
from tests import sample
from tests.kit.kafka import Variant as KafkaVariant
from tests.kit.kafka import make_topic
from tests.kit.kafka_modes import open_variant
from tests.upgrade.job import EPOCHS, JOB, live
from tests.upgrade.releases import RELEASES, OldJob

pytestmark = pytest.mark.services

ROWS = [row for parts in EPOCHS for part in parts for row in part]
DYING = 1
"""The epoch in which the old release dies; the one before it is finished, one comes after."""

TWO_STEP = (CrashPoint.AFTER_PRE_COMMIT, CrashPoint.AFTER_DECIDE, CrashPoint.BETWEEN_COMMITS)
COMPOSED = (CrashPoint.AFTER_PRE_COMMIT, CrashPoint.AFTER_DECIDE, CrashPoint.AFTER_COMMIT)
"""Where the commit is of one object."""
ONE_STEP = (CrashPoint.AFTER_PRE_COMMIT, CrashPoint.INSIDE_CO_COMMIT, CrashPoint.AFTER_CO_COMMIT)

DECIDED = (CrashPoint.AFTER_DECIDE, CrashPoint.BETWEEN_COMMITS, CrashPoint.AFTER_COMMIT)


@dataclass(frozen=True, slots=True)
class Cell:
    """A sink, a protocol, and where its register lies.

    Args:
        points: where the old release dies. After the last one the epoch is partly visible, or all of
            it: a takeover that drops what is decided doubles it. (Before, it is written again, and
            nobody sees that.)
    """

    sink: str
    name: str
    points: tuple[CrashPoint, ...]
    own_register: bool = True


def _cells() -> Iterator[Cell]:
    for name, variant in VARIANTS.items():
        own = variant.own_register
        elsewhere = TWO_STEP if variant.protocol == "2pc" else COMPOSED
        points = elsewhere if variant.protocol == "2pc" or not own else ONE_STEP
        yield Cell("postgres", name, points, own)
    for protocol, own in (("2pc", True), ("2pc", False), ("wal", True), ("wal", False)):
        points = ONE_STEP if protocol == "wal" and own else TWO_STEP
        yield Cell("kafka", KafkaVariant(protocol, own).name, points, own)
    yield Cell("kafka", "idempotent", ONE_STEP)
    for protocol in ("2pc", "wal", "idempotent"):
        points = {"2pc": TWO_STEP, "wal": COMPOSED, "idempotent": ONE_STEP}[protocol]
        yield Cell("s3", protocol, points)


CELLS = [pytest.param(cell, id=f"{cell.sink}-{cell.name}") for cell in _cells()]
OTHERS = [(cell, point) for cell in _cells() for point in cell.points[:-1]]
SAMPLED = 4


@pytest.fixture(scope="module", params=RELEASES, ids=lambda path: path.stem)
def old(request: pytest.FixtureRequest) -> Iterator[OldJob]:
    with OldJob(request.param) as job:
        yield job


@pytest.fixture(scope="module")
def shared(postgres: PostgresService) -> Iterator[str]:
    with fresh_database(postgres) as url:
        yield url


@contextmanager
def target(
    request: pytest.FixtureRequest, cell: Cell, folder: Path
) -> Iterator[tuple[Harness, dict[str, Any]]]:
    """A target of the cell's, and what a process of the job is told."""
    with ExitStack() as opened:
        harness: Any
        if cell.sink == "postgres":
            request.getfixturevalue("postgres").start()
            url = request.getfixturevalue("shared")
            harness = opened.enter_context(open_table(url, VARIANTS[cell.name]))
            given = {
                "url": url,
                "dbtable": harness.table,
                "stateschema": harness.schema,
                "protocol": VARIANTS[cell.name].protocol,
                "write": VARIANTS[cell.name].write,
                "locktimeout": "2",
                **({"key": "id"} if VARIANTS[cell.name].write == "upsert" else {}),
            }
        elif cell.sink == "kafka":
            kafka: KafkaService = request.getfixturevalue("kafka")
            kafka.start()
            harness = opened.enter_context(open_variant(kafka.bootstrap, cell.name))
            given = {
                "kafka.bootstrap.servers": kafka.bootstrap,
                "topic": harness.topic,
                "registertopic": harness.options.registertopic,
                "protocol": harness.variant.protocol,
            }
            if harness.variant.protocol == "wal":
                given["wal"] = harness.folder.as_uri()
        else:
            store: S3Service = request.getfixturevalue("store")
            store.start()
            given = {
                "endpoint": store.endpoint,
                "region": store.region,
                "timeout": "20",
                "protocol": cell.name,
            }
            path = f"s3://{store.bucket}/upgrade-{secrets.token_hex(6)}"
            harness = opened.enter_context(open_folder(path, given))
            given["path"] = harness.path
        yield (
            harness,
            {
                "sink": cell.sink,
                "given": given,
                "own_register": cell.own_register,
                "folder": str(folder),
                "environment": {k: v for k, v in os.environ.items() if k.startswith("AWS_")},
                "epoch": DYING,
            },
        )


@sample.cases(5)
@pytest.mark.parametrize("cell", CELLS)
def test_a_job_of_an_older_release_is_taken_over_and_finished(
    request: pytest.FixtureRequest, old: OldJob, cell: Cell, tmp_path: Path
) -> None:
    taken_over(request, old, cell, cell.points[-1], tmp_path)


def test_it_is_taken_over_wherever_the_older_release_died(
    request: pytest.FixtureRequest, old: OldJob, tmp_path: Path
) -> None:
    for cell, point in sample.cut(OTHERS, SAMPLED, "upgrade"):
        taken_over(request, old, cell, point, tmp_path / f"{cell.sink}-{cell.name}-{point}")


@pytest.mark.campaign
@pytest.mark.parametrize(("cell", "point"), OTHERS)
def test_it_is_taken_over_at_every_point(
    request: pytest.FixtureRequest, old: OldJob, cell: Cell, point: CrashPoint, tmp_path: Path
) -> None:
    taken_over(request, old, cell, point, tmp_path)


SHOWN = {
    ("wal-foreign-register", CrashPoint.AFTER_DECIDE),
    ("2pc", CrashPoint.BETWEEN_COMMITS),
    ("2pc-append-foreign-register", CrashPoint.BETWEEN_COMMITS),
    ("idempotent", CrashPoint.INSIDE_CO_COMMIT),
}
"""Of ``BURYING`` in the sample: where an epoch of the older release is in doubt."""

BURYING = [
    pytest.param(cell, point, marks=() if (cell.name, point) in SHOWN else pytest.mark.campaign)
    for cell in _cells()
    for point in cell.points
]


@pytest.mark.parametrize(("cell", "point"), BURYING)
def test_it_is_taken_over_by_a_job_that_keeps_dead_letters_from_now_on(
    request: pytest.FixtureRequest, old: OldJob, cell: Cell, point: CrashPoint, tmp_path: Path
) -> None:
    taken_over(request, old, cell, point, tmp_path, burying=True)


def _burying(harness: Any, cell: Cell) -> dict[str, str]:
    """The options of today's job: with a place for dead letters."""
    if cell.sink == "postgres":
        return {"deadletter": f"{harness.table}_dead"}
    if cell.sink == "kafka":
        make_topic(harness.options.kafka, f"{harness.topic}-dead")
        return {"deadletter": f"{harness.topic}-dead"}
    return {"deadletter": f"{harness.path}/_dead"}


def taken_over(
    request: pytest.FixtureRequest,
    old: OldJob,
    cell: Cell,
    point: CrashPoint,
    folder: Path,
    *,
    burying: bool = False,
) -> None:
    """Let the older release die at this point, today's code finish the job, and look at the target."""
    folder.mkdir(exist_ok=True)
    what = f"{cell.sink} {cell.name}, {point} (ABS_TEST_SEED={sample.seed()})"
    with target(request, cell, folder) as (harness, told):
        ended = old.live({**told, "crash": str(point)})
        assert ended == -SIGKILL, f"{what}: it ended with {ended} instead of its death"
        _is_open(harness, cell, point, folder)
        more = _burying(harness, cell) if burying else {}
        live({**told, "given": {**told["given"], **more}, "crash": None})
        found = sorted((int(key), str(value)) for key, value in harness.read())
        assert found == sorted(ROWS), what
        # A server may take a moment to see that the old process has gone.
        assert within(60.0, lambda: not harness.leftovers(JOB)), (what, harness.leftovers(JOB))


def _is_open(harness: Harness, cell: Cell, point: CrashPoint, folder: Path) -> None:
    """What the old release left is what the case is about."""
    register = FileRegister(folder / "register")
    store = harness.new_sink().register() if cell.own_register else register
    stored = store.load(JOB)
    assert stored is not None
    decided = [decision.epoch for decision in stored.state.open]
    wanted = [DYING] if point in DECIDED else []
    assert decided == wanted
    assert stored.state.frontier == (DYING if point is CrashPoint.AFTER_CO_COMMIT else DYING - 1)
