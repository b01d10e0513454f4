"""A source of changes that goes back is told; changes that come late, or again, are none of its."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from psycopg import sql
from typer.testing import CliRunner

from abs_cli.main import app
from abs_core.errors import SourceWentBackError
from abs_sinks.postgres.apply import committed
from abs_sinks.postgres.apply.changes import Changes
from tests.planted import planted
from tests.sample import cases
from tests.sinks.postgres.changing import BARE, OWN, Change, Changing, changing

TIMED = pa.schema(
    [
        *(("id", pa.int64()), ("at", pa.int64()), ("op", pa.string()), ("v", pa.string())),
        ("source_ts_ms", pa.int64()),
    ]
)
SAME = TIMED.append(pa.field("same", pa.list_(pa.string())))
PLACES = {"table": (OWN, {}), "side": (BARE, {"positions": "side"})}
WAYS: dict[str, dict[str, Any]] = {
    "wal": {},
    "idempotent": {"protocol": "idempotent"},
    "elsewhere": {"own": False},
    "dead letters": {"deadletter": "letters_of_went_back"},
    "idempotent, dead letters": {"protocol": "idempotent", "deadletter": "letters_of_went_back"},
}


IS_AGAIN = committed.is_again


def world(url: str, positions: str, **more: Any) -> Any:
    columns, options = PLACES[positions]
    return changing(url, columns, more.pop("schema", TIMED), **options, **more)


def before(row: int, at: int, time: int, value: str = "old", op: str = "u") -> Change:
    return (row, at, op, value, time)


OLD = [before(1, 1000, 50_000), before(2, 1100, 60_000), (3, 1200, "d", None, 70_000)]
"""What is applied before: rows 1 and 2, and the deleted one 3."""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("positions", PLACES)
def test_a_source_whose_positions_begin_again_lower_stops_the_job(
    shared_database: str, positions: str, way: str
) -> None:
    with world(shared_database, positions, **WAYS[way]) as copy:
        run = copy.job()
        run.apply(0, OLD)
        seen, noted = copy.rows("id, v"), copy.positions()
        # Row 9 is new and could be applied; the epoch stops as a whole.
        again = [before(9, 90, 79_000, "new"), before(2, 100, 80_000, "new")]
        with pytest.raises(SourceWentBackError, match=r'\("id"\) = \(2\)') as told:
            run.apply(1, again)
        assert "committed later than all" in str(told.value)
        assert (copy.rows("id, v"), copy.positions()) == (seen, noted)
        with pytest.raises(SourceWentBackError):
            copy.job().apply(1, again)  # a restart does not forget it


@pytest.mark.parametrize("positions", PLACES)
def test_a_deleted_row_that_a_restored_source_inserts_again_stops_the_job(
    shared_database: str, positions: str
) -> None:
    with world(shared_database, positions) as copy:
        run = copy.job()
        run.apply(0, OLD)
        with pytest.raises(SourceWentBackError):
            run.apply(1, [before(3, 100, 80_000, "new", op="c")])


def test_a_change_that_leaves_columns_as_they_are_is_told_so_too(shared_database: str) -> None:
    with world(shared_database, "side", schema=SAME, unchanged="same") as copy:
        run = copy.job()
        run.apply(0, [(*change, []) for change in OLD])
        with pytest.raises(SourceWentBackError):
            run.apply(1, [(2, 100, "u", None, 80_000, ["v"])])


def test_two_jobs_of_one_table_share_what_they_know(shared_database: str) -> None:
    with world(shared_database, "side") as copy:
        copy.apply(OLD)
        copy.apply([before(1, 900, 40_000), before(2, 1100, 60_000)])  # an older part comes again
        with pytest.raises(SourceWentBackError):
            copy.apply([before(1, 100, 80_000)])


def stopped(copy: Changing) -> tuple[list[Change], str]:
    """Stop a job; the changes that stopped it, and what the error says to do."""
    run = copy.job()
    run.apply(0, OLD)
    again = [before(1, 90, 80_000, "new"), before(2, 100, 81_000, "new")]
    with pytest.raises(SourceWentBackError) as told:
        run.apply(1, again)
    return again, told.value.remedy


@pytest.mark.parametrize("positions", PLACES)
def test_a_copy_that_begins_again_from_nothing_has_every_row(
    shared_database: str, positions: str
) -> None:
    with world(shared_database, positions) as copy:
        again, remedy = stopped(copy)
        assert "`abs job reset JOB`, an empty table and a new checkpoint" in remedy
        copy.db.execute(f"truncate {copy.table}")
        asked = ["job", "reset", "job", "--url", copy.url, "--stateschema", copy.state, "--yes"]
        done = CliRunner().invoke(app, asked)
        assert done.exit_code == 0, done.output
        copy.job().apply(0, again)
        assert copy.rows("id, v") == [(1, "new"), (2, "new")]


@pytest.mark.parametrize("positions", PLACES)
def test_positions_that_are_forgotten_let_every_change_that_comes_next_in(
    shared_database: str, positions: str
) -> None:
    with world(shared_database, positions) as copy:
        again, remedy = stopped(copy)
        copy.db.execute(remedy.split("comes next: ")[1].split("; what the source")[0])
        copy.job().apply(1, again)
        assert copy.rows("id, v") == [(1, "new"), (2, "new")]
        with pytest.raises(SourceWentBackError):
            copy.job().apply(2, [before(1, 50, 90_000)])  # it speaks again


def test_without_the_option_the_changes_are_left_out_and_the_job_goes_on(
    shared_database: str,
) -> None:
    with world(shared_database, "side") as copy:
        again, _ = stopped(copy)
        left = copy.schema.remove(copy.schema.get_field_index("source_ts_ms"))
        copy.schema = left.append(pa.field("ms", pa.int64()))
        copy.job(committedat="", exceptcolumns="ms").apply(1, again)
        assert copy.rows("id, v") == [(1, "old"), (2, "old")]


def epochs_of(source: list[Change], draw: random.Random) -> list[list[Change]]:
    """The changes of an intact source, cut at random, with parts that come again or late."""
    parts, start = [], 0
    while start < len(source):
        end = start + draw.randint(1, 12)
        back = max(0, start - draw.choice([0, 0, 5, 40]))  # a connector sends a tail again
        parts.append(source[back:end])
        if draw.random() < 0.2 and start:
            old = draw.randrange(start)
            parts.append(source[old : old + draw.randint(1, 8)])  # a short part alone
        start = end
    return parts


def history(
    draw: random.Random, position: int = 0, time: int = 1_000, count: int = 120
) -> list[Change]:
    """Changes in the order of their commits; some transactions stay open for long.

    A position is taken when a change is made, the time when it is committed: those of a long
    transaction have low positions and a late time. Its rows are locked until then.
    """
    sent: list[Change] = []
    long: dict[int, int] = {}
    for _ in range(count):
        time += draw.choice([0, 0, 1, 500])
        row = draw.randrange(12)
        if row not in long:
            position += draw.randint(1, 9)
            if draw.random() < 0.15:
                long[row] = position
            else:
                op = draw.choice("ccuud")
                sent.append((row, position, op, None if op == "d" else f"{time}.{position}", time))
        if draw.random() < 0.05:
            sent += [(row, at, "u", f"{time}.{at}", time) for row, at in long.items()]
            long = {}
    return sent


def rows_after(*sources: Sequence[Change]) -> list[tuple[int, str]]:
    last = {change[0]: change for source in sources for change in source}
    return [(row, change[3]) for row, change in sorted(last.items()) if change[2] != "d"]


def copied(url: str, seed: int) -> None:
    """Copy an intact source, in parts that come again and late, and by a second job from the start."""
    draw = random.Random(seed)
    source = history(draw)
    way = WAYS[draw.choice(list(WAYS))]
    with world(url, draw.choice(list(PLACES)), tombstones="366d", **way) as copy:
        run = copy.job()
        for number, changes in enumerate(epochs_of(source, draw)):
            cut = draw.randint(0, len(changes))
            run.apply(number, changes[:cut], changes[cut:])
        copy.apply(*epochs_of(source, draw))
        assert copy.rows("id, v") == rows_after(source)


def went_back(url: str, seed: int) -> bool:
    """Copy a source that goes back at some time; whether that was told.

    As long as it is not told, no change was left out.
    """
    draw = random.Random(seed)
    source = history(draw)
    _, position, _, _, time = source[-1]
    lower = draw.randint(0, position)
    way = WAYS[draw.choice(list(WAYS))]
    with world(url, draw.choice(list(PLACES)), tombstones="366d", **way) as copy:
        copy.apply(*epochs_of(source, draw))
        run, sent = copy.job(), list[Change]()
        later = history(draw, lower, time + draw.randint(1, 100), 40)
        for number, at in enumerate(range(0, len(later), 7)):
            try:
                run.apply(number, later[at : at + 7])
            except SourceWentBackError:
                return True
            sent += later[at : at + 7]
            assert copy.rows("id, v") == rows_after(source, sent)
    return False


@cases(5)
@pytest.mark.parametrize("seed", range(60))
def test_an_intact_source_is_never_told_to_have_gone_back(shared_database: str, seed: int) -> None:
    copied(shared_database, seed)


@cases(5)
@pytest.mark.parametrize("seed", range(60))
def test_no_change_of_a_source_that_went_back_is_left_out_in_silence(
    shared_database: str, seed: int
) -> None:
    went_back(shared_database, seed)


def never(changes: Changes) -> sql.SQL:
    return sql.SQL("false")


def by_position_alone(changes: Changes) -> sql.SQL:
    return sql.SQL("true")


def inverted(changes: Changes) -> sql.Composed:
    return sql.SQL("not ({})").format(IS_AGAIN(changes))


def nothing_noted(*_: object) -> list[sql.Composed]:
    return []


@pytest.mark.parametrize(
    ("name", "bug", "finds"),
    [
        ("is_again", never, went_back),
        ("is_again", inverted, copied),
        ("is_again", by_position_alone, copied),
        ("noting", nothing_noted, copied),
    ],
)
def test_planted_bugs_are_found(shared_database: str, name: str, bug: Any, finds: Any) -> None:
    with planted((committed, name, bug), by=(AssertionError, SourceWentBackError)):
        for seed in range(20):
            finds(shared_database, seed)
