"""Appends files to a table, each under the partition specification that it was written with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, ManifestFile, write_manifest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.table.snapshots import (
    CHANGED_PARTITION_COUNT_PROP,
    Operation,
    Summary,
    UpdateMetrics,
    update_snapshot_summaries,
)
from pyiceberg.table.update.snapshot import _FastAppendFiles, _MergeAppendFiles
from pyiceberg.typedef import EMPTY_DICT
from pyiceberg.types import NestedField, StructType

from abs_clients.iceberg.entries import Added


class _Manifest(PartitionSpec):
    """A specification under which a manifest is written.

    The library gives the manifest's Avro schema the names of the fields as they are, which DuckDB then
    cannot read, and no NULL where the source must not be NULL, though a void field is always NULL.
    Readers find the fields by their ids.
    """

    @classmethod
    def of(cls, spec: PartitionSpec) -> PartitionSpec:
        named: Mapping[str, Any] = {"spec_id": spec.spec_id}
        return cls(*spec.fields, **named)

    def partition_type(self, schema: Schema) -> StructType:
        fields: dict[str, NestedField] = {}
        for field in super().partition_type(schema).fields:
            name = re.sub("[^A-Za-z0-9_]", lambda sign: f"_x{ord(sign[0]):X}", field.name)
            while name in fields or name[:1].isdigit():
                name = f"_{name}"
            fields[name] = NestedField(field.field_id, name, field.field_type, required=False)
        return StructType(*fields.values())


class _Appending(_FastAppendFiles):
    """The library's own append writes each file under the table's newest specification and schema.

    That takes the values of another specification for its own, or leaves them out. Here each
    specification has a manifest. The files are known before the commit begins: ``append_data_file`` is
    not used.
    """

    def __init__(
        self,
        added: Sequence[Added],
        transaction: Transaction,
        io: FileIO,
        properties: Mapping[str, str],
    ) -> None:
        super().__init__(Operation.APPEND, transaction, io, snapshot_properties=dict(properties))
        self._added = added

    def spec(self, spec_id: int) -> PartitionSpec:
        """Of manifests that are merged."""
        return _Manifest.of(super().spec(spec_id))

    def _existing_manifests(self) -> list[ManifestFile]:
        return [*self._written(), *super()._existing_manifests()]

    def _written(self) -> list[ManifestFile]:
        def under(one: Added) -> tuple[int, int]:
            return one.spec.spec_id, one.schema.schema_id

        made: list[ManifestFile] = []
        for _, group in groupby(sorted(self._added, key=under), under):
            files = list(group)
            with write_manifest(
                format_version=self._transaction.table_metadata.format_version,
                spec=_Manifest.of(files[0].spec),
                schema=files[0].schema,
                output_file=self.new_manifest_output(),
                snapshot_id=self._snapshot_id,
                avro_compression=self._compression,
            ) as writer:
                for one in files:
                    writer.add(
                        ManifestEntry.from_args(
                            status=ManifestEntryStatus.ADDED,
                            snapshot_id=self._snapshot_id,
                            sequence_number=None,
                            file_sequence_number=None,
                            data_file=one.file,
                        )
                    )
            made.append(writer.to_manifest_file())
        return made

    def _summary(self, snapshot_properties: Mapping[str, str] = EMPTY_DICT) -> Summary:
        counted = UpdateMetrics()
        for one in self._added:
            counted.add_file(one.file)
        partitions = {
            (one.spec.spec_id, one.file.partition) for one in self._added if one.spec.fields
        }
        properties = {**counted.to_dict(), **snapshot_properties}
        if partitions:
            properties[CHANGED_PARTITION_COUNT_PROP] = str(len(partitions))
        before = self._transaction.table_metadata.snapshot_by_name(self._target_branch)
        summary: Any = Summary(operation=self._operation, **properties)
        return update_snapshot_summaries(summary, before.summary if before else None)


class _Merging(_Appending, _MergeAppendFiles):
    """The same for a table whose manifests are merged.

    Those of older specifications stay as they are: the library reads them with the newest schema, which
    may have lost a column that they are partitioned by.
    """

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        newest = self._transaction.table_metadata.default_spec_id
        merged = super()._process_manifests([m for m in manifests if m.partition_spec_id == newest])
        return [*merged, *(m for m in manifests if m.partition_spec_id != newest)]


def append(
    transaction: Transaction, io: FileIO, added: Sequence[Added], properties: Mapping[str, str]
) -> None:
    """Add a snapshot with these files to the transaction; with none it has none.

    Args:
        properties: of the snapshot.
    """
    merges = transaction.table_metadata.properties.get(TableProperties.MANIFEST_MERGE_ENABLED, "")
    kind = _Merging if merges.strip().lower() == "true" else _Appending
    with kind(added, transaction, io, properties):
        pass
