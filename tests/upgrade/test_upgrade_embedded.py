"""A job of the embedded runtime of an older release is taken over with its state, and finished.

The old release itself runs, and kills itself where a checkpoint is decided and not committed, or
written and not decided. Today's code restores its snapshot, by each backend of keyed state.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from signal import SIGKILL

import psycopg
import pytest

from abs_core.crash import CrashPoint
from tests import sample
from tests.upgrade.job import KEYS, ROWS, live_embedded
from tests.upgrade.releases import RELEASES, OldJob

pytestmark = pytest.mark.services

BACKENDS = ("heap", "rocksdb", "mvcc", "2pc", "opaque")
STRATEGIES = ("aligned", "unaligned")
OTHERS = (CrashPoint.AFTER_DECIDE, CrashPoint.AFTER_INSPECT)
"""Of the last one a record is written, and no decision names it."""
PASSAGES = (2, 3)

Case = tuple[str, str, CrashPoint, int]
"""Backend, snapshot strategy, where the older release dies, and at which passage."""


@pytest.fixture(scope="module", params=RELEASES, ids=lambda path: path.stem)
def old(request: pytest.FixtureRequest) -> Iterator[OldJob]:
    with OldJob(request.param) as job:
        yield job


@sample.cases(2)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_job_of_an_older_release_is_taken_over_with_its_state(
    old: OldJob, backend: str, database: str, tmp_path: Path
) -> None:
    # Part of the checkpoint is visible, part is not: a decision that is dropped doubles that part.
    ((strategy, passage),) = sample.cut(product(STRATEGIES, PASSAGES), 1, backend)
    taken_over(old, (backend, strategy, CrashPoint.BETWEEN_COMMITS, passage), database, tmp_path)


def test_it_is_taken_over_wherever_the_older_release_died(
    old: OldJob, database: str, tmp_path: Path
) -> None:
    (case,) = sample.cut(product(BACKENDS, STRATEGIES, OTHERS, PASSAGES), 1, "embedded upgrade")
    taken_over(old, case, database, tmp_path)


@pytest.mark.campaign
@pytest.mark.parametrize("case", list(product(BACKENDS, STRATEGIES, OTHERS, PASSAGES)))
def test_it_is_taken_over_at_every_point(
    old: OldJob, case: Case, database: str, tmp_path: Path
) -> None:
    taken_over(old, case, database, tmp_path)


def taken_over(old: OldJob, case: Case, database: str, folder: Path) -> None:
    """Let the older release die, today's code finish the job, and look at the target."""
    backend, strategy, point, passage = case
    life = {
        "sink": "embedded",
        "backend": backend,
        "strategy": strategy,
        "folder": str(folder),
        "given": {"url": database, "dbtable": "counted"},
        "environment": {},
    }
    what = f"{backend}, {strategy}, {point}#{passage} (ABS_TEST_SEED={sample.seed()})"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE counted (id bigint, value text)")
        ended = old.live({**life, "crash": f"{point}#{passage}"})
        assert ended == -SIGKILL, f"{what}: it ended with {ended} instead of its death"
        before = connection.execute("SELECT count(*) FROM counted").fetchone()
        assert before is not None
        assert before[0] < ROWS, f"{what}: nothing was left to do"
        live_embedded({**life, "crash": None})
        found = connection.execute("SELECT id, value FROM counted").fetchall()
        assert sorted(id_ for id_, _ in found) == list(range(ROWS)), what
        counts = [len(range(key, ROWS, KEYS)) for key in range(KEYS)]
        values = [f"{key}:{n + 1}" for key, total in enumerate(counts) for n in range(total)]
        assert sorted(value for _, value in found) == sorted(values), what
        left = connection.execute(
            "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
        )
        assert left.fetchall() == [], what
