"""What a killed run left is ended, and a job that never comes back is removed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from abs_core.errors import FencedError
from abs_core.model import Wrote
from abs_sinks.postgres.testing import VARIANTS, TableHarness, open_table
from abs_testing.case import JOB, Case, raises, rows
from tests.kit.command import abs_
from tests.sinks.postgres.changing import Changing, changing

pytestmark = pytest.mark.services
ROWS, MORE = rows(0, 3), rows(10, 3)


@pytest.fixture
def case(shared_database: str) -> Iterator[Case]:
    with open_table(shared_database, VARIANTS["2pc-append"]) as harness, Case(harness) as found:
        yield found


def command(case: Case, *words: str) -> str:
    harness = case.harness
    assert isinstance(harness, TableHarness)
    at = ["--url", harness.url, "--stateschema", harness.options.stateschema]
    done = abs_(*words, *at)
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def test_what_a_killed_run_left_is_aborted_by_fencing_it_and_the_job_goes_on(case: Case) -> None:
    case.run().epoch(0, ROWS)
    killed = case.run()
    shares = killed.tasks(1, MORE)
    told = command(case, "in-doubt", "abort", JOB)
    assert "aborted 0 handles; 1 left" in told
    assert "add --fence" in told
    ended = "1 handles; 0 left"
    assert f"would abort {ended}" in command(case, "in-doubt", "abort", JOB, "--fence", "--dry-run")
    assert f"aborted {ended}" in command(case, "in-doubt", "abort", JOB, "--fence")
    case.finished(ROWS, when="after the last run was fenced")
    raises(FencedError, lambda: killed.commit(1, shares))
    case.run().epoch(1, MORE)
    case.finished(ROWS, MORE, when="after the next start")


def test_a_register_that_is_retired_names_what_is_open_and_both_ways_to_end_it(case: Case) -> None:
    case.run().epoch(0, ROWS)
    (share,) = case.run().tasks(1, MORE)
    assert isinstance(share, Wrote)
    assert share.committable is not None
    handle = str(share.committable.handle)
    told = command(case, "register", "retire", JOB, "--yes")
    assert f"1 pre-committed handles of {JOB} are open, {handle} for one" in told
    assert f"`abs job remove {JOB}` ends them" in told
    command(case, "in-doubt", "abort", JOB, "--orphan", handle)
    case.finished(ROWS, when="after what was open was named and ended")


def test_a_job_that_never_comes_back_leaves_its_rows_and_nothing_else(database: str) -> None:
    """All that the database has of it is looked at: tables, their rows, prepared transactions."""
    columns = "id bigint primary key, v text check (v <> 'bad')"
    with changing(database, columns, positions="side", deadletter="dead") as t:
        t.job("gone").apply(0, [(1, 1, "c", "a"), (2, 1, "c", "bad"), (3, 1, "d", None)])
        killed = t.job("gone")
        killed.stage(1, 0, [(4, 1, "c", "d")])
        at = ["--url", database, "--stateschema", t.state, "--yes"]
        told = " ".join(abs_("job", "remove", "gone", *at).output.split())
        assert f"dropped {t.state}.positions_" in told
        assert 'kept 1 dead letters in "public"."dead": add --dead-letters' in told
        assert "no other job has its register there" in told
        assert left(t) == {f"{t.state}.register": 0, f"{t.state}.marker": 0, "public.dead": 1}
        assert t.rows("id, v") == [(1, "a")]
        t.job("gone").apply(0, [(1, 2, "u", "b"), (5, 1, "c", "bad")])
        told = " ".join(abs_("job", "remove", "gone", *at, "--dead-letters").output.split())
        assert "dropped" in told.partition("dead")[0]
        assert left(t) == {f"{t.state}.register": 0, f"{t.state}.marker": 0}
        assert t.rows("id, v") == [(1, "b")]


def left(table: Changing) -> dict[str, int]:
    """Every table of the database but the target, with its number of rows; nothing is prepared."""
    query = "select gid from pg_prepared_xacts where database = current_database()"
    assert table.db.execute(query).fetchall() == []
    names = table.db.execute(
        "select schemaname || '.' || tablename from pg_tables"
        " where schemaname !~ '^(pg_|information_schema)' and tablename <> %s",
        (table.table,),
    ).fetchall()
    counts = {
        name: table.db.execute(f"select count(*) from {name}").fetchone() for (name,) in names
    }
    return {name: row[0] for name, row in counts.items() if row is not None}
