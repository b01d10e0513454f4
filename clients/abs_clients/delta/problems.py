"""What of a Delta table a writer of plain files cannot keep, and what is to be done instead."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from deltalake import DeltaTable

Problem = tuple[str, str]

_FEATURES = {
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "columnMapping",
    "deletionVectors",
    "domainMetadata",
    "generatedColumns",
    "identityColumns",
    "invariants",
    "timestampNtz",
    "v2Checkpoint",
    "vacuumProtocolCheck",
}
"""Writer features under which a plain file may be added, where none of ``_demands`` uses them."""

_DEMANDS = {
    "delta.invariants": "an invariant",
    "delta.generationExpression": "a generated value",
    "delta.identity.start": "an identity",
    "__CHAR_VARCHAR_TYPE_STRING": "a length (CHAR or VARCHAR)",
}
"""What a column's metadata may ask of writers."""

_RETENTION = "delta.setTransactionRetentionDuration"
_VACUUM = "delta.deletedFileRetentionDuration"

_UNITS = {"week": 7, "day": 1, "hour": 1 / 24, "minute": 1 / 1440, "second": 1 / 86400}
_UNITS |= {"millisecond": 0, "microsecond": 0, "nanosecond": 0}


def problems_of(table: DeltaTable) -> Iterator[Problem]:
    """What cannot be kept, and what to do, each as a sentence."""
    yield from _of_features(table)
    yield from _of_columns(table)
    yield from _of_settings(table.metadata().configuration)


def _of_features(table: DeltaTable) -> Iterator[Problem]:
    protocol = table.protocol()
    unknown = set(protocol.writer_features or ()) - _FEATURES
    # deltalake adds it with any property, to a table that has a moment without zone.
    if '"variant"' not in table.schema().to_json():
        unknown.discard("variantType")
    if unknown:
        yield (
            f"The table has writer features that are not kept here: {', '.join(sorted(unknown))}.",
            "drop the features (ALTER TABLE ... DROP FEATURE), or write to another table.",
        )


def _of_columns(table: DeltaTable) -> Iterator[Problem]:
    for path, metadata in _columns(json.loads(table.schema().to_json())["fields"]):
        for name, demand in _DEMANDS.items():
            if name in metadata:
                yield (
                    f"The column {path} has {demand}, which is not computed or checked here.",
                    "compute the value in Spark and drop the rule, or write to another table.",
                )


def _columns(node: Any, path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Path and metadata of each column of a schema, and of each part of a nested one."""
    if isinstance(node, dict):
        path = ".".join(filter(None, (path, node.get("name"))))
        if "metadata" in node:
            yield path, node["metadata"]
        node = list(node.values())
    for part in node if isinstance(node, list) else ():
        yield from _columns(part, path)


def _of_settings(settings: Mapping[str, str | None]) -> Iterator[Problem]:
    if (settings.get("delta.columnMapping.mode") or "none") != "none":
        yield (
            "The table has column mapping (delta.columnMapping.mode), which is not written here.",
            "write to a table without it.",
        )
    for name in sorted(settings):
        if name.startswith("delta.constraints."):
            rule = name.removeprefix("delta.constraints.")
            yield (
                f"The table has the constraint {rule}, which is not checked here.",
                "drop it and filter the rows in Spark, or write to another table.",
            )
    if settings.get(_RETENTION):
        forgets = (
            f"The table forgets the transactions of writers after {settings[_RETENTION]} "
            f"({_RETENTION}): a job that was down for longer would write its last epoch again."
        )
        yield forgets, f"unset {_RETENTION}."
    kept = settings.get(_VACUUM)
    if kept and (days := _days(kept)) < 1:
        fault = "cannot be read" if days < 0 else "is less than a day"
        problem = (
            f"VACUUM keeps files of less than a day ({_VACUUM} = {kept}, which {fault}): after a crash "
            "it would remove files of a decided epoch before the log names them."
        )
        yield problem, f"set {_VACUUM} to the longest absence of the job, or unset it (a week)."


def _days(interval: str) -> float:
    """Of a text such as ``interval 12 hours``; less than 0: it cannot be read."""
    match = re.fullmatch(r"(?:interval\s+)?(\d+)\s+(\w+?)s?", interval.strip().lower())
    unit = None if match is None else _UNITS.get(match[2])
    return -1 if match is None or unit is None else int(match[1]) * unit
