"""Beside a live job: rows in flight are no finding, and what is wrong is told in the next round."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from duckdb import DuckDBPyConnection, DuckDBPyRelation

from abs_audit import AuditSettings, Relation, Round, follow, following
from abs_audit import workspace as workspaces
from abs_cli.main import main
from abs_core.errors import UnavailableError
from tests.audit.conftest import BY_ID, Records
from tests.planted import planted

LATE = 60.0


def table(*ids: int, name: str = "n") -> pa.Table:
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "name": pa.array([name] * len(ids), pa.string())}
    )


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Job:
    """A source and a target at each moment; a round is a look at both."""

    def __init__(self, records_of: Callable[..., Records], key: Sequence[str] = ("id",)) -> None:
        self.expected, self.actual = records_of(table()), records_of(table())
        self.clock = Clock()
        settings = AuditSettings(key=key)
        self.rounds = follow(self.expected, self.actual, settings, late=LATE, clock=self.clock)

    def look(self, second: float, expected: pa.Table, actual: pa.Table) -> Round:
        self.clock.now, self.expected.table, self.actual.table = second, expected, actual
        return next(self.rounds)


@pytest.fixture
def job(records_of: Callable[..., Records]) -> Iterator[Job]:
    made = Job(records_of)
    yield made
    made.rounds.close()


def test_what_is_on_its_way_is_in_flight_and_no_alarm(job: Job) -> None:
    found = job.look(0, table(1, 2, 3), table(1))
    assert (found.in_flight, found.late, found.reasons) == (2, 0, ())
    found = job.look(50, table(1, 2, 3, 4), table(1, 2))
    assert (found.in_flight, found.late, found.oldest_seconds, found.reasons) == (2, 0, 50.0, ())
    found = job.look(100, table(1, 2, 3, 4), table(1, 2, 3, 4))
    assert (found.in_flight, found.oldest_seconds, found.reasons) == (0, 0.0, ())


def test_what_is_absent_for_too_long_is_late_until_it_arrives(job: Job) -> None:
    job.look(0, table(1, 2), table(2))
    found = job.look(LATE + 1, table(1, 2, 3), table(2))
    assert (found.in_flight, found.late, found.reasons) == (2, 1, ("1 late",))
    assert not job.look(LATE + 2, table(1, 2, 3), table(1, 2)).reasons


def test_a_row_that_was_there_and_is_gone_counts_from_when_it_was_gone(job: Job) -> None:
    job.look(0, table(1), table())
    job.look(10, table(1), table(1))
    found = job.look(LATE + 5, table(1), table())
    assert (found.in_flight, found.late) == (1, 0)
    assert job.look(2 * LATE + 6, table(1), table()).late == 1


def test_a_changed_row_may_be_in_flight_too(job: Job) -> None:
    found = job.look(0, table(1, name="new"), table(1, name="old"))
    assert (found.in_flight, found.reasons) == (1, ())
    assert job.look(LATE + 1, table(1, name="new"), table(1, name="old")).late == 1


def test_a_duplicate_and_an_unexpected_row_are_alarms_at_once(job: Job) -> None:
    assert job.look(0, table(1, 2), table(1, 1)).reasons == ("1 duplicate",)
    assert job.look(1, table(1, 2), table(1, 2, 3)).reasons == ("1 unexpected",)


def test_without_a_key_a_row_waits_by_all_of_its_columns(
    records_of: Callable[..., Records],
) -> None:
    job = Job(records_of, key=())
    nothing = pa.table({"id": pa.array([None], pa.int64()), "name": pa.array(["n"])})
    job.look(0, nothing, table())
    assert job.look(LATE + 1, nothing, table()).late == 1
    job.rounds.close()


class Growing(Relation):
    """One growing set of rows: each read sees one row more than the read before, by whatever side."""

    name = "growing"

    def __init__(self, first: list[int]) -> None:
        self.ids = first

    def columns(self, connection: DuckDBPyConnection) -> Mapping[str, Any]:
        return Records(table()).columns(connection)

    @contextlib.contextmanager
    def rows(
        self, connection: DuckDBPyConnection, names: Sequence[str]
    ) -> Iterator[DuckDBPyRelation]:
        self.ids.append(len(self.ids))
        with Records(table(*self.ids)).rows(connection, names) as found:
            yield found


def test_places_are_looked_for_in_an_alarm_and_not_for_rows_in_flight(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    monkeypatch.setattr("abs_audit.following.locate", lambda *_: looked.append(1))
    job.look(0, table(1, 2), table(1))
    assert looked == []
    job.look(LATE + 1, table(1, 2), table(1))
    job.look(LATE + 2, table(1, 2), table(1, 1, 2))
    assert looked == [1, 1]


def test_rows_that_come_between_the_two_reads_are_no_alarm() -> None:
    """The target is read first: in the other order, the row that came between would be unexpected."""
    ids: list[int] = []
    with contextlib.closing(follow(Growing(ids), Growing(ids), BY_ID)) as rounds:
        for _ in range(3):
            found = next(rounds)
            assert (found.in_flight, found.reasons) == (1, ())


def test_the_wrong_order_of_reads_would_be_found() -> None:
    waiting: list[Any] = []

    def swapped(connection: Any, name: str, *rest: Any, **more: Any) -> None:
        waiting.append((connection, name, rest, more))
        if len(waiting) == 2:
            for conn, table_, others, kept in reversed(waiting):
                workspaces.load(conn, table_, *others, **kept)
            waiting.clear()

    with planted((following, "load", swapped), match="1 unexpected"):
        test_rows_that_come_between_the_two_reads_are_no_alarm()


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["abs", "audit", *arguments])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as end:
            main()
        return int(end.value.code or 0), *capsys.readouterr()

    return run


@pytest.fixture
def sides(tmp_path: Path) -> dict[str, str]:
    for name, found in {"e": table(1, 2, 3), "behind": table(1, 2), "twice": table(1, 1)}.items():
        pq.write_table(found, tmp_path / f"{name}.parquet")
    return {name: str(tmp_path / f"{name}.parquet") for name in ("e", "behind", "twice")}


def test_the_command_tells_each_comparison_and_ends_well_for_rows_in_flight(
    command: Callable[..., tuple[int, str, str]], sides: dict[str, str]
) -> None:
    code, out, _ = command(
        *("--expected", sides["e"], "--actual", sides["behind"], "--key", "id"),
        *("--follow", "--times", "2", "--every", "0"),
    )
    assert (code, out.count("in flight 1"), out.count("ok")) == (0, 2, 2)


def test_the_command_ends_with_1_for_an_alarm_and_says_where(
    command: Callable[..., tuple[int, str, str]], sides: dict[str, str]
) -> None:
    arguments = ("--expected", sides["e"], "--actual", sides["twice"], "--key", "id")
    code, out, _ = command(*arguments, "--follow", "--times", "1")
    assert code == 1
    assert "1 duplicate" in out
    assert sides["twice"] in out
    code, out, _ = command(*arguments, "--follow", "--times", "2", "--every", "0", "--json")
    assert (code, [json.loads(line)["duplicate"] for line in out.splitlines()]) == (1, [1, 1])


def test_a_side_that_is_away_for_a_while_is_told_and_read_again(
    command: Callable[..., tuple[int, str, str]],
    sides: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from abs_audit.files import Files

    answers = [UnavailableError("It is away."), None]
    columns = Files.columns

    def away(self: Files, connection: DuckDBPyConnection) -> Any:
        if answers and (error := answers.pop(0)):
            raise error
        return columns(self, connection)

    monkeypatch.setattr(Files, "columns", away)
    arguments = ("--expected", sides["e"], "--actual", sides["e"], "--key", "id", "--follow")
    code, out, err = command(*arguments, "--times", "2", "--every", "0")
    assert (code, out.count("ok")) == (0, 1)
    assert "It is away." in err
    answers[:] = [UnavailableError("It is away.")]
    code, out, err = command(*arguments, "--times", "1")
    assert (code, out) == (3, "")


def test_a_report_is_also_a_page_with_each_difference_and_its_place(
    command: Callable[..., tuple[int, str, str]], sides: dict[str, str], tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    arguments = ("--expected", sides["e"], "--actual", sides["twice"], "--key", "id")
    code, _, _ = command(*arguments, "--report", str(page))
    text = page.read_text()
    assert code == 1
    assert text.startswith("<!DOCTYPE html>")
    assert "NOT CLEAN" in text
    assert sides["twice"] in text
    assert "http" not in text.replace("http://www.w3.org", "")
    file = tmp_path / "report.json"
    command(*arguments, "--report", str(file))
    assert json.loads(file.read_text())["duplicate"] == 1


def test_a_report_of_another_kind_or_beside_a_job_is_refused(
    command: Callable[..., tuple[int, str, str]], sides: dict[str, str], tmp_path: Path
) -> None:
    arguments = ("--expected", sides["e"], "--actual", sides["twice"])
    code, _, told = command(*arguments, "--report", "out.pdf")
    assert (code, "--report" in told) == (2, True)
    code, _, told = command(*arguments, "--follow", "--report", str(tmp_path / "out.html"))
    assert (code, "--follow" in told) == (2, True)
    assert not list(tmp_path.glob("out.*"))
