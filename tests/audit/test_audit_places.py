"""Each difference is named with where it is: file, partition and offset, or row of a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import psycopg
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from duckdb import DuckDBPyConnection, DuckDBPyRelation

from abs_audit import Files, Report, audit, relation
from abs_audit.contracts import PLACE
from abs_core.errors import UnavailableError
from abs_services import KafkaService, S3Service
from tests.audit.conftest import BY_ID

EXPECTED = [{"id": n, "name": f"n{n}"} for n in range(4)]
FIRST = [EXPECTED[0], EXPECTED[1], EXPECTED[0]]
"""0 twice; with SECOND, 2 is changed, 3 is missing and 9 is unexpected."""
SECOND = [{"id": 2, "name": "other"}, {"id": 9, "name": "n9"}]


def places(report: Report) -> dict[str, tuple[int, int]]:
    """By kind of the one sample: how many places it has on each side."""
    return {
        kind: (len(sample.expected_in), len(sample.found_in))
        for kind, (sample,) in report.differences.samples.items()
    }


ALL_PLACED = {"missing": (1, 0), "duplicate": (1, 2), "unexpected": (0, 1), "corrupted": (1, 1)}


def found(report: Report, kind: str) -> tuple[str, ...]:
    return report.differences.samples[kind][0].found_in


def _json(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _arrow(path: Path, rows: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(rows)
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


WRITERS: dict[str, Callable[[Path, list[dict[str, Any]]], None]] = {
    "json": _json,
    "csv": lambda path, rows: pc.write_csv(pa.Table.from_pylist(rows), path),
    "parquet": lambda path, rows: pq.write_table(pa.Table.from_pylist(rows), path),
    "arrow": _arrow,
}


@pytest.mark.parametrize("kind", WRITERS)
def test_a_difference_in_files_is_named_with_its_file(kind: str, tmp_path: Path) -> None:
    for name, rows in {"expected": EXPECTED, "t/day=1/a": FIRST, "t/day=1/b": SECOND}.items():
        file = tmp_path / f"{name}.{kind}"
        file.parent.mkdir(parents=True, exist_ok=True)
        WRITERS[kind](file, rows)
    report = audit(
        Files((str(tmp_path / f"expected.{kind}"),)), Files((str(tmp_path / "t"),)), BY_ID
    )
    assert places(report) == ALL_PLACED
    assert set(found(report, "duplicate")) == {str(tmp_path / f"t/day=1/a.{kind}")}
    assert found(report, "unexpected") == (str(tmp_path / f"t/day=1/b.{kind}"),)
    assert report.differences.samples["missing"][0].expected_in == (
        str(tmp_path / f"expected.{kind}"),
    )


class Away(Files):
    """Files that can be read, but not for places."""

    @contextmanager
    def rows(
        self, connection: DuckDBPyConnection, names: Sequence[str]
    ) -> Iterator[DuckDBPyRelation]:
        if PLACE in names:
            raise UnavailableError("The store does not answer.")
        with super().rows(connection, names) as rows:
            yield rows


def test_a_side_that_is_away_when_places_are_looked_for_does_not_take_the_report(
    tmp_path: Path,
) -> None:
    _json(tmp_path / "expected.json", EXPECTED)
    _json(tmp_path / "actual.json", [*FIRST, *SECOND])
    expected, actual = (str(tmp_path / f"{name}.json") for name in ("expected", "actual"))

    report = audit(Files((expected,)), Away((actual,)), BY_ID)

    assert not report.clean
    assert places(report)["missing"] == (1, 0)
    for kind in ("duplicate", "unexpected", "corrupted"):
        (told,) = found(report, kind)
        assert "could not be read: The store does not answer." in told


def test_a_record_that_is_there_very_often_has_some_of_its_places(compare: Any) -> None:
    report = compare({"id": [1]}, {"id": [1] * 50}, key=["id"])
    (sample,) = report.differences.samples["duplicate"]
    assert (sample.records, sample.found_in) == (49, ())  # a table in memory has no places


def test_not_more_than_some_places_of_a_record_are_named(tmp_path: Path) -> None:
    _json(tmp_path / "e.json", EXPECTED[:1])
    _json(tmp_path / "a.json", EXPECTED[:1] * 50)
    report = audit(Files((str(tmp_path / "e.json"),)), Files((str(tmp_path / "a.json"),)), BY_ID)
    assert len(found(report, "duplicate")) == 5


@pytest.mark.services
def test_a_difference_in_a_topic_is_named_with_partition_and_offset(
    kafka: KafkaService, topic: str, tmp_path: Path
) -> None:
    _json(tmp_path / "expected.json", EXPECTED)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for row in (*FIRST, *SECOND):
        producer.produce(topic, json.dumps(row).encode(), partition=0)
        assert producer.flush(30) == 0
    report = audit(
        Files((str(tmp_path / "expected.json"),)),
        relation([f"kafka://{kafka.bootstrap}/{topic}"]),
        BY_ID,
    )
    assert places(report) == ALL_PLACED
    assert found(report, "duplicate") == ("partition 0, offset 0", "partition 0, offset 2")
    assert found(report, "unexpected") == ("partition 0, offset 4",)

    raw = tmp_path / "raw.parquet"
    pq.write_table(pa.table({"value": pa.array([b"x"])}), raw)
    url = f"kafka://{kafka.bootstrap}/{topic}?value=raw"
    of_bytes = audit(
        Files((str(raw),)), relation([url]), type(BY_ID)(key=["value"], columns=["value"])
    )
    assert "partition 0, offset 4" in {
        place for s in of_bytes.differences.samples["unexpected"] for place in s.found_in
    }


@pytest.mark.services
def test_a_difference_in_a_bucket_is_named_with_its_object(
    s3: S3Service, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    _json(tmp_path / "expected.json", EXPECTED)
    client = boto3.client("s3", endpoint_url=s3.endpoint, region_name=s3.region)
    for name, rows in (("a", FIRST), ("b", SECOND)):
        body = "".join(json.dumps(row) + "\n" for row in rows).encode()
        client.put_object(Bucket=s3.bucket, Key=f"{prefix}/day=1/{name}.json", Body=body)
    client.close()
    url = f"s3://{s3.bucket}/{prefix}?endpoint={s3.endpoint}&region={s3.region}"
    report = audit(Files((str(tmp_path / "expected.json"),)), relation([url]), BY_ID)
    assert places(report) == ALL_PLACED
    assert found(report, "unexpected") == (f"s3://{s3.bucket}/{prefix}/day=1/b.json",)


@pytest.mark.services
def test_a_difference_in_a_table_is_named_with_its_row_and_a_view_has_none(
    database: str, tmp_path: Path
) -> None:
    _json(tmp_path / "expected.json", EXPECTED)
    expected = Files((str(tmp_path / "expected.json"),))
    with psycopg.connect(database, autocommit=True) as session:
        session.execute("create table placed (id bigint, name text) partition by range (id)")
        session.execute("create table placed_low partition of placed for values from (0) to (5)")
        session.execute("create table placed_high partition of placed default")
        session.execute("create view seen as select * from placed")
        for row in (*FIRST, *SECOND):
            session.execute("insert into placed values (%s, %s)", (row["id"], row["name"]))
        report = audit(expected, relation([database], table="placed"), BY_ID)
        assert places(report) == ALL_PLACED
        assert found(report, "unexpected") == ("placed_high, ctid (0,1)",)
        doubled = session.execute(
            "select id from placed_low where ctid = %s",
            (found(report, "duplicate")[1].rpartition(" ")[2],),
        ).fetchall()
        assert doubled == [(0,)]
        seen = audit(expected, relation([database], table="seen"), BY_ID)
    assert places(seen)["duplicate"] == (1, 0)
