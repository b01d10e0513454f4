"""What deltalake does with features of Delta that are refused; a release that takes one fails here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError
from deltalake.transaction import AddAction

from abs_clients.delta.problems import problems_of

COLUMNS = [("id", "long"), ("text", "string")]


def table_with(folder: Path, feature: str, settings: dict[str, str], *, read: bool = False) -> str:
    """A table with a feature, by its log alone: as delta-spark makes it."""
    mapped = feature == "columnMapping"
    fields = [
        {
            "name": name,
            "type": kind,
            "nullable": True,
            "metadata": {
                "delta.columnMapping.id": number,
                "delta.columnMapping.physicalName": f"col-{number}",
            }
            if mapped
            else {},
        }
        for number, (name, kind) in enumerate(COLUMNS, 1)
    ]
    protocol: dict[str, Any] = {
        "minReaderVersion": 3 if read else 1,
        "minWriterVersion": 7,
        "writerFeatures": [feature],
        **({"readerFeatures": [feature]} if read else {}),
    }
    metadata = {
        "id": "00000000-0000-0000-0000-000000000001",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": settings,
        "createdTime": 1,
    }
    begun = {"timestamp": 1, "operation": "CREATE TABLE", "inCommitTimestamp": 1}
    actions = [{"commitInfo": begun}, {"protocol": protocol}, {"metaData": metadata}]
    (folder / "_delta_log").mkdir()
    log = folder / "_delta_log" / f"{0:020}.json"
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return str(folder)


def commit(path: str) -> None:
    """A commit of a plain file, as the sink makes it."""
    table = DeltaTable(path)
    file = AddAction("f.parquet", 1, {}, 0, True, "{}")
    table.create_write_transaction(
        [file], "append", table.schema(), commit_properties=CommitProperties(max_commit_retries=0)
    )


@pytest.mark.parametrize(
    ("feature", "settings", "read"),
    [
        ("clustering", {}, False),
        ("rowTracking", {"delta.enableRowTracking": "true"}, False),
        ("inCommitTimestamp", {"delta.enableInCommitTimestamps": "true"}, False),
        ("typeWidening", {"delta.enableTypeWidening": "true"}, True),
    ],
)
def test_the_commit_refuses_the_table(
    feature: str, settings: dict[str, str], read: bool, tmp_path: Path
) -> None:
    path = table_with(tmp_path, feature, settings, read=read)
    assert list(problems_of(DeltaTable(path)))
    with pytest.raises(CommitFailedError, match="Unsupported table features required"):
        commit(path)


def test_a_table_with_column_mapping_is_not_read(tmp_path: Path) -> None:
    settings = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
    path = table_with(tmp_path, "columnMapping", settings, read=True)
    assert list(problems_of(DeltaTable(path)))
    with pytest.raises(DeltaProtocolError, match="columnMapping"):
        DeltaTable(path).to_pyarrow_table()


def test_a_constraint_is_checked_by_a_write_and_not_by_a_commit_of_files(tmp_path: Path) -> None:
    path = table_with(tmp_path, "checkConstraints", {"delta.constraints.positive": "id > 0"})
    assert list(problems_of(DeltaTable(path)))
    with pytest.raises(DeltaError, match="failed validation"):
        write_deltalake(path, pa.table({"id": [-1], "text": ["a"]}), mode="append")
    commit(path)
    assert DeltaTable(path).version() == 1
