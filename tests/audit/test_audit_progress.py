"""A running audit says what it reads, how far it is, and how long that still takes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from duckdb import DuckDBPyConnection, DuckDBPyRelation

from abs_audit import Files, Relation, audit
from abs_audit.families import Family, Type
from abs_audit.progress import Meter, Progress, metered, streamed
from tests.audit.conftest import BY_ID

BATCHES, ROWS = 10, 1000


class Slow(Relation):
    """A relation that looks at the meter after each batch that it hands out."""

    name = "slow"

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.seen: list[Progress] = []

    def columns(self, connection: DuckDBPyConnection) -> Mapping[str, Type]:
        return {"id": Type(Family.INTEGER, 64)}

    @contextmanager
    def rows(
        self, connection: DuckDBPyConnection, names: Sequence[str]
    ) -> Iterator[DuckDBPyRelation]:
        schema = pa.schema([("id", pa.int64())])

        def batches() -> Iterator[pa.RecordBatch]:
            for n in range(BATCHES):
                yield pa.record_batch([pa.array(range(n * ROWS, (n + 1) * ROWS))], schema=schema)
                self.seen.append(self.meter.now())

        with streamed(connection, schema, batches()) as found:
            yield found


def test_each_read_counts_its_records_and_knows_the_share_that_is_left(tmp_path: Path) -> None:
    path = tmp_path / "e.parquet"
    pq.write_table(pa.table({"id": pa.array(range(BATCHES * ROWS))}), path)
    ticks = iter(range(10_000))
    meter = Meter(clock=lambda: float(next(ticks)))
    target = Slow(meter)
    with metered(meter):
        assert audit(Files((str(path),)), target, BY_ID).clean
    first = [seen for seen in target.seen if seen.step == "reading the target, read 1"]
    assert [seen.records for seen in first] == [ROWS * n for n in range(1, BATCHES + 1)]
    assert [seen.share for seen in first] == [n / BATCHES for n in range(1, BATCHES + 1)]
    left = [seen.seconds_left for seen in first]
    assert left == [seen.seconds * (1 - seen.share) / seen.share for seen in first if seen.share]
    assert {seen.step for seen in target.seen} == {f"reading the target, read {n}" for n in (1, 2)}


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (Progress("reading", 0, None, 5.0), "reading"),
        (Progress("reading", 5000, 0.25, 30.0), "reading, 5,000 records, 25%, 90 s left"),
        (Progress("reading", 5000, 1.25, 30.0), "reading, 5,000 records, 100%, 0 s left"),
        (Progress("reading", 1, 0.001, 1.0), "reading, 1 records, 0%"),
    ],
)
def test_what_is_not_known_is_not_said(progress: Progress, text: str) -> None:
    assert str(progress) == text


def test_a_closed_database_says_nothing() -> None:
    meter, connection = Meter(), duckdb.connect()
    meter.begin("reading", connection)
    connection.close()
    assert meter.now().share is None


def test_the_progress_of_files_is_the_databases_own() -> None:
    """duckdb reads parquet by itself: what it says of its query is asked for by another thread."""

    class Halfway:
        def query_progress(self) -> float:
            return 50.0

    meter = Meter(clock=iter([0.0, 0.0, 8.0]).__next__)
    meter.begin("reading", Halfway())  # type: ignore[arg-type]
    assert (meter.now().share, str(Progress("r", 0, 0.5, 8.0))) == (0.5, "r, 50%, 8 s left")


def test_a_command_prints_no_progress_into_its_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from abs_cli.main import main

    path = tmp_path / "e.parquet"
    pq.write_table(pa.table({"id": pa.array(range(10))}), path)
    monkeypatch.setattr("abs_cli.audit_job._TELL_SECONDS", 0.001)
    arguments = ["abs", "audit", "--json", "--expected", str(path), "--actual", str(path)]
    monkeypatch.setattr("sys.argv", arguments)
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    assert json.loads(capsys.readouterr().out)["clean"]
