"""The commits of an Iceberg table, from its metadata and manifests alone."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from abs_clients.tablelog import Epoch, LoggedCommit, LoggedFile, TableHistory

_OFFSETS = "kafka.connect.offsets."
"""Kafka Connect: the prefix of a property with the control topic's offsets, as a JSON object."""

_FILES = (
    "in one commit remove the file from the table and append it once (pyiceberg: `with "
    "table.transaction() as t, t.update_snapshot().overwrite() as o: o.delete_data_file(f); "
    "o.append_data_file(f)`; Java: newOverwrite().deleteFile(f).addFile(f)). The file itself must stay."
)

_REMOVE = (
    "pyiceberg: `with table.transaction() as t, t.update_snapshot().overwrite() as o: "
    "o.delete_data_file(f)`; Java: newDelete().deleteFile(f)"
)

_CONNECT_BEGINS_AGAIN = "the control topic, or its cluster, was made again"
_FLINK_REPEATS = (
    "the job writes several snapshots in one checkpoint, as Flink does where rows have several schemas "
    "or specifications"
)


def history_of(table: Table) -> TableHistory:
    """The branch ``main``; of expired snapshots only the files that are still named are told."""
    lineage = list(ancestors_of(table.current_snapshot(), table.metadata))
    added: dict[int, dict[str, DataFile]] = defaultdict(dict)
    removed: dict[int, set[str]] = defaultdict(set)
    with_deletes: set[int] = set()
    live: Counter[str] = Counter()
    seen: set[str] = set()
    for snapshot in lineage:  # the newest is the first
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in seen:
                continue
            seen.add(manifest.manifest_path)
            if manifest.content is not ManifestContent.DATA:
                with_deletes.add(manifest.added_snapshot_id or 0)
                continue
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                file = entry.data_file
                if entry.status is ManifestEntryStatus.DELETED:
                    removed[entry.snapshot_id or 0].add(file.file_path)
                    continue
                added[entry.snapshot_id or 0][file.file_path] = file  # the library fills it in
                if snapshot is lineage[0]:
                    live[file.file_path] += 1
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in reversed(lineage)}
    expired = [identity for identity in added if identity not in snapshots]
    commits = [
        _commit(identity, snapshot, added.get(identity, {}), removed.get(identity, set()))
        for identity, snapshot in [*((old, None) for old in sorted(expired)), *snapshots.items()]
    ]
    # Which files a file of deletes is about is not read: it may be any.
    commits = [
        replace(commit, altered=None) if int(commit.name) in with_deletes else commit
        for commit in commits
    ]
    return TableHistory(tuple(commits), live, _FILES, _REMOVE)


def is_ancestor(metadata: TableMetadata, place: str) -> bool | None:
    """Whether a snapshot is in the history of ``main``; None: what would tell it has expired.

    Args:
        place: see ``IcebergSnapshot.place_of``.
    """
    sequence, identity = map(int, place.split())
    current = metadata.current_snapshot_id
    kept = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    lineage: list[Snapshot] = []
    while current is not None and current in kept:
        if current == identity:
            return True
        lineage.append(kept[current])
        current = kept[current].parent_snapshot_id
    if sequence == 0:  # format version 1 has no numbers
        there = kept.get(identity)
        before = there is not None and any(s.timestamp_ms < there.timestamp_ms for s in lineage)
        return False if before else None
    numbers = {snapshot.sequence_number or 0 for snapshot in kept.values()}
    first = min((snapshot.sequence_number or 0 for snapshot in lineage), default=sequence + 1)
    # None has expired in between. Else one may be missing that leads to this snapshot, which a tag may
    # keep; some clean-ups leave no trace of an expired parent.
    whole = all(number in numbers for number in range(sequence, first))
    return False if whole else None


def _commit(
    identity: int, snapshot: Snapshot | None, added: Mapping[str, DataFile], removed: set[str]
) -> LoggedCommit:
    summary = None if snapshot is None else snapshot.summary
    rewritten = summary is not None and summary.operation is Operation.REPLACE
    files = tuple(
        LoggedFile(path, file.record_count, None if rewritten else _content(file))
        for path, file in added.items()
    )
    properties = {} if summary is None else summary.additional_properties
    at = None if snapshot is None else snapshot.timestamp_ms
    unread: list[str] = []
    epochs = tuple(_epochs(properties, unread))
    gone = tuple(sorted(removed))
    return LoggedCommit(
        str(identity), at, files, epochs, tuple(unread), removed=gone, rewrites=rewritten
    )


def _content(file: DataFile) -> str | None:
    if not file.lower_bounds:
        return None
    columns: list[Any] = [
        sorted((numbers or {}).items())
        for numbers in (
            file.column_sizes,
            file.lower_bounds,
            file.upper_bounds,
            file.null_value_counts,
        )
    ]
    return repr((file.record_count, file.file_size_in_bytes, repr(file.partition), columns))


def _epochs(properties: Mapping[str, str], unread: list[str]) -> Iterator[Epoch]:
    """Of Kafka Connect, Flink, Spark and this package, by the properties of their snapshots.

    Args:
        unread: takes the names of those that cannot be read.
    """
    operator = properties.get("flink.operator-id", "")
    flink = f"Flink job {properties.get('flink.job-id', '')}, operator {operator}"
    spark = f"Spark query {properties.get('spark.sql.streaming.queryId', '')}"
    for name, value in properties.items():
        try:
            if name.startswith(_OFFSETS):
                offsets = {place: int(offset) for place, offset in json.loads(value).items()}
                writer = f"Kafka Connect ({name.removeprefix(_OFFSETS)})"
                yield Epoch(writer, offsets, begins_again=_CONNECT_BEGINS_AGAIN)
            elif name.startswith("abs-") and value.isdecimal():
                yield Epoch(name, {"version": int(value)})
            elif name == "flink.max-committed-checkpoint-id":
                yield Epoch(flink, {"checkpoint": int(value)}, repeats=_FLINK_REPEATS)
            elif name == "spark.sql.streaming.epochId":
                yield Epoch(spark, {"epoch": int(value)})
        except (ValueError, AttributeError, TypeError):
            unread.append(name)
