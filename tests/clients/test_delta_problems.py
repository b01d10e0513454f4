"""What a Delta table may ask that is not kept: each is refused by name, before anything is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from abs_clients.delta.log import DeltaLog
from abs_core.errors import RefusedError, SchemaError
from abs_sinks.delta import DeltaOptions, DeltaSink
from abs_testing.case import Case
from tests.sinks.delta.harness import TableHarness

SCHEMA = pa.schema([("id", pa.int64())])


def column(name: str = "id", kind: Any = "long", **metadata: Any) -> dict[str, Any]:
    told = {key.replace("__", ".", 1): value for key, value in metadata.items()}
    return {"name": name, "type": kind, "nullable": True, "metadata": told}


def part(inner: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": [inner]}


RULE = json.dumps({"expression": {"expression": "id > 0"}})
INVARIANT = column(delta__invariants=RULE)
NAMED = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}


def made(
    folder: Path,
    *fields: dict[str, Any],
    versions: tuple[int, int] = (1, 2),
    features: tuple[str, ...] = (),
    **settings: str,
) -> DeltaLog:
    """A table as another engine would have made it."""
    protocol: dict[str, Any] = dict(
        zip(("minReaderVersion", "minWriterVersion"), versions, strict=True)
    )
    if features:
        protocol["writerFeatures"] = list(features)
    if versions[0] == 3:
        protocol["readerFeatures"] = list(features)
    metadata = {
        "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields or [column()]}),
        "partitionColumns": [],
        "configuration": {
            f"delta.{name.replace('_', '.')}": told for name, told in settings.items()
        },
        "createdTime": 1,
    }
    log = folder / "table" / "_delta_log"
    log.mkdir(parents=True)
    lines = [json.dumps({"protocol": protocol}), json.dumps({"metaData": metadata})]
    (log / f"{0:020}.json").write_text("\n".join(lines))
    return DeltaLog(str(log.parent))


@pytest.mark.parametrize(
    ("asks", "told"),
    [
        ({"fields": [INVARIANT]}, "The column id has an invariant"),
        ({"fields": [column("s", part(INVARIANT))]}, "The column s.id has an invariant"),
        (
            {"fields": [column("l", {"type": "array", "elementType": part(INVARIANT),
                                     "containsNull": True})]},
            "The column l.id has an invariant",
        ),
        ({"fields": [column(delta__generationExpression="1")], "versions": (1, 4)}, "generated value"),
        (
            {"fields": [{**column(), "metadata": {"delta.identity.start": 1, "delta.identity.step": 1,
                                                  "delta.identity.allowExplicitInsert": False}}],
             "versions": (1, 6)},
            "an identity",
        ),
        (
            {"fields": [{**column("v", "string"),
                         "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}}]},
            "The column v has a length",
        ),
        (
            {"fields": [{**column(), "metadata": NAMED}], "versions": (2, 5),
             "columnMapping_mode": "name"},
            "column mapping",
        ),
        ({"versions": (1, 3), "constraints_positive": "id > 0"}, "the constraint positive"),
        ({"versions": (1, 7), "features": ("rowTracking", "domainMetadata")}, "rowTracking"),
        ({"versions": (1, 7), "features": ("inCommitTimestamp",)}, "inCommitTimestamp"),
        ({"setTransactionRetentionDuration": "interval 30 days"}, "forgets the transactions"),
        ({"deletedFileRetentionDuration": "interval 12 hours"}, "less than a day"),
        ({"deletedFileRetentionDuration": "interval 0 seconds"}, "less than a day"),
        ({"deletedFileRetentionDuration": "whenever"}, "cannot be read"),
    ],
)  # fmt: skip
def test_what_is_not_kept_is_refused_by_name_before_anything_is_written(
    asks: dict[str, Any], told: str, tmp_path: Path
) -> None:
    log = made(tmp_path, *asks.pop("fields", []), **asks)
    sink = DeltaSink(DeltaOptions.parse({"path": log.url}), SCHEMA)
    with pytest.raises(SchemaError, match=told) as refused:
        sink.target_id  # noqa: B018 - it looks at the table
    assert refused.value.remedy
    [finding] = sink.preflight("job")
    assert told in finding.what
    assert [path.name for path in Path(log.url).iterdir()] == ["_delta_log"]


def test_a_table_whose_commits_a_catalog_manages_is_refused(tmp_path: Path) -> None:
    log = made(tmp_path, versions=(3, 7), features=("catalogManaged",))
    with pytest.raises(RefusedError, match="managed by a catalog"):
        log.load()


@pytest.mark.parametrize("kept", ["interval 1 week", "interval 24 hours", "2 days"])
def test_a_clean_up_that_waits_for_a_day_is_no_hindrance(kept: str, tmp_path: Path) -> None:
    found = made(tmp_path, deletedFileRetentionDuration=kept).load()
    assert found is not None
    assert found.problems() == []


@pytest.mark.parametrize(
    ("versions", "setting"), [((1, 4), "enableChangeDataFeed"), ((1, 2), "appendOnly")]
)
def test_append_only_tables_and_change_feeds_take_rows(
    versions: tuple[int, int], setting: str, tmp_path: Path
) -> None:
    """A change feed of added files needs no files of its own: a reader derives the inserts."""
    fields = [column(), column("value", "string")]
    settings: dict[str, Any] = {setting: "true"}
    log = made(tmp_path, *fields, versions=versions, **settings)
    harness = TableHarness(str(tmp_path), {})
    harness.options = DeltaOptions.parse({"path": log.url})
    harness.new_sink = lambda: DeltaSink(
        harness.options, pa.schema([("id", pa.int64()), ("value", pa.string())])
    )
    Case(harness).run().epoch(0, [(1, "a")], [(2, "b")])
    assert sorted(harness.read()) == [(1, "a"), (2, "b")]
    if setting == "enableChangeDataFeed":
        feed = pa.table(DeltaTable(log.url).load_cdf(starting_version=1)).to_pydict()
        assert sorted(feed["id"]) == [1, 2]
        assert set(feed["_change_type"]) == {"insert"}
