"""A version of a Delta log that adds columns and files at once, which the library cannot write.

It is written as the library writes others: under the next version's name, if that is not there yet.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from deltalake import DeltaTable, Schema

from abs_clients.s3.location import Location
from abs_clients.s3.objects import Objects
from abs_clients.s3.server import Bucket, Server
from abs_core.durable import create_durably
from abs_core.errors import SchemaError

_FEATURES = {"timestamp_ntz": "timestampNtz", "variant": "variantType"}
"""Types that a table must have a feature for."""


def written(value: Any) -> str:
    """JSON for a Delta log: without escapes, of which Arrow's Rust reader reads some wrong.

    It takes the pair of a sign outside of the first plane for another one, if the plane's number is
    even: so for each rare Chinese one. deltalake and DuckDB read logs by it.
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def put_version(url: str, server: Server | None, version: int, lines: Sequence[Any]) -> bool:
    """Write a version of the log as a whole; False: it is there already."""
    name = f"{version:020}.json"
    body = "".join(f"{written(line)}\n" for line in lines).encode()
    if server is not None:
        place = Location.parse(url)
        objects = Objects(Bucket(server, place.bucket))
        return objects.put_if(f"{place.folder}_delta_log/{name}", body, None) is not None
    # Other readers of the table are other users.
    return create_durably(Path(url, "_delta_log", name), body, private=False)


def actions_of(
    table: DeltaTable, columns: pa.Schema, files: Sequence[Any], mark: Any
) -> list[Mapping[str, Any]]:
    """The actions of the version after this one.

    Raises:
        SchemaError: the table has no type for a column.
    """
    now = int(time.time() * 1000)
    parameters = {"mode": "Append", "partitionBy": json.dumps(table.metadata().partition_columns)}
    info = {
        "timestamp": now,
        "operation": "WRITE",
        "operationParameters": parameters,
        **mark.properties,
    }
    adds = [
        {
            "path": quote(file.path, safe="/="),
            "size": file.size,
            "partitionValues": dict(file.values),
            "modificationTime": now,
            "dataChange": True,
            "stats": file.stats,
        }
        for file in files
    ]
    return [
        {"commitInfo": info},
        {"metaData": _metadata(table, columns)},
        {"txn": {"appId": mark.application, "version": mark.version}},
        *({"add": add} for add in adds),
    ]


def _metadata(table: DeltaTable, columns: pa.Schema) -> Mapping[str, Any]:
    old = table.metadata()
    schema = json.loads(table.schema().to_json())
    features = table.protocol().writer_features or ()
    for column in columns:
        added = json.loads(Schema.from_arrow(pa.schema([column])).to_json())["fields"]
        for kind, feature in _FEATURES.items():
            if f'"{kind}"' in json.dumps(added) and feature not in features:
                raise SchemaError(
                    f"The table has not the feature {feature}, which the column {column.name} needs.",
                    remedy="add the column to the table first, or cast it in Spark.",
                )
        schema["fields"] += added
    optional = {"name": old.name, "description": old.description, "createdTime": old.created_time}
    return {
        "id": str(old.id),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": written(schema),
        "partitionColumns": old.partition_columns,
        "configuration": old.configuration,
        **{name: value for name, value in optional.items() if value is not None},
    }
