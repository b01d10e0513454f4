"""A job of changes that begins again from nothing: no position of a row that is gone is left."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from abs_cli.main import app
from abs_core.model import Severity
from abs_sinks.postgres.door import PostgresFormat
from tests.planted import planted
from tests.sinks.postgres.changing import BARE, OWN, Changing, changing

pytestmark = pytest.mark.services

CAME = [(1, 1, "c", "a"), (2, 1, "c", "b"), (3, 1, "c", "c"), (3, 2, "d", None)]
EXPECTED = [(1, "a"), (2, "b")]


@pytest.fixture(params=["table", "side"])
def table(request: pytest.FixtureRequest, shared_database: str) -> Iterator[Changing]:
    columns = OWN if request.param == "table" else BARE
    with changing(shared_database, columns, positions=request.param) as made:
        made.job("copy").apply(0, CAME)
        yield made


@pytest.fixture
def side(shared_database: str) -> Iterator[Changing]:
    with changing(shared_database, BARE, positions="side") as made:
        made.job("copy").apply(0, CAME)
        yield made


def reset(table: Changing) -> str:
    asked = ["job", "reset", "copy", "--url", table.url, "--stateschema", table.state, "--yes"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def test_a_job_that_begins_again_from_nothing_by_the_page_has_every_row(table: Changing) -> None:
    table.db.execute(f"truncate {table.table}")
    assert f"dropped {table.state}.positions_" in reset(table)
    table.job("copy").apply(0, CAME)
    assert table.rows("id, v") == EXPECTED


def test_nor_does_a_row_that_was_deleted_by_hand_stay_away(table: Changing) -> None:
    table.db.execute(f"delete from {table.table} where id = 2")
    told = reset(table)
    assert "deleted 1 positions" in told or "kept" in told
    table.job("copy").apply(0, CAME)
    assert table.rows("id, v") == EXPECTED
    table.apply([(3, 1, "c", "late")], positions=table.given["positions"])
    assert table.rows("id, v") == EXPECTED, "a tombstone was forgotten, though the table has rows"


def test_nor_a_row_of_a_table_that_was_dropped_and_created_again(side: Changing) -> None:
    side.db.execute(f"drop table {side.table}")
    assert "dropped" in reset(side)
    side.db.execute(f"create table {side.table} ({BARE})")
    side.job("copy").apply(0, CAME)
    assert side.rows("id, v") == EXPECTED


def test_positions_that_another_job_needs_are_kept_and_it_is_named(side: Changing) -> None:
    side.job("other").apply(0, [(4, 1, "c", "d")])
    side.db.execute(f"truncate {side.table}")
    assert "job other writes to it, too" in reset(side)
    assert len(side.positions()) == 4


def test_a_start_is_refused_where_only_positions_are_left_and_its_remedy_works(
    side: Changing,
) -> None:
    side.db.execute(f"drop table {side.table}")
    side.db.execute(f"create table {side.table} ({BARE})")
    (found,) = [f for f in side.sink().preflight("new") if f.severity is Severity.ERROR]
    assert "is empty, but" in found.what
    side.db.execute(re.findall(r"DROP TABLE \S+\.\S+(?<!\.)", found.remedy)[0])
    assert not [f for f in side.sink().preflight("new") if f.severity is Severity.ERROR]
    side.job("new").apply(0, CAME)
    assert side.rows("id, v") == EXPECTED


def test_a_table_whose_rows_were_all_deleted_by_changes_is_as_it_should_be(side: Changing) -> None:
    side.apply([(1, 2, "d", None), (2, 2, "d", None)])
    assert side.rows("id, v") == []
    assert not [f for f in side.sink().preflight("new") if f.severity is Severity.ERROR]


def test_the_log_counts_changes_and_rows_apart_and_warns_of_an_epoch_that_does_nothing(
    side: Changing, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "abs_sinks.changes"):
        side.apply([(1, 2, "u", "A"), (1, 3, "u", "AA"), (2, 2, "d", None), (5, 1, "c", "e")], CAME)
    told = [r.getMessage() for r in caplog.records if r.name == "abs_sinks.changes"]
    assert ["4 changes; 2 rows written, 1 deleted" in line for line in told] == [True, False]
    assert "4 changes; 0 rows written, 0 deleted" in told[1]
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]
    side.db.execute(f"truncate {side.table}")
    side.apply(CAME)
    (warned,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert "4 changes do nothing" in warned
    assert "abs job reset" in warned


def test_planted_a_reset_that_forgets_no_positions_loses_every_row(side: Changing) -> None:
    side.db.execute(f"truncate {side.table}")
    with planted((PostgresFormat, "forget", lambda self, options, state, letters=None: ())):
        reset(side)
        side.job("copy").apply(0, CAME)
        assert side.rows("id, v") != []
