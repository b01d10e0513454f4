"""An Iceberg table, by ``pyiceberg``.

The project leans on these behaviours of the library, see ``tests/clients/test_iceberg_table.py``:

- A commit that adds files demands that the branch ``main`` is where it was when the table was loaded.
  After a ``CommitFailedException`` of the catalog the library appends the stale commit again, and at
  last deletes its manifests. It does neither after another exception.
- A property set in the same transaction appears with the files, and outlives the snapshots' expiry.
- ``add_files`` reads each footer again, takes partition values from its statistics, and refuses what it
  does not expect there: so it is for handles of releases that made no entries (``entries``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    ForbiddenError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from abs_clients.iceberg.append import append
from abs_clients.iceberg.catalogs import keep, opened
from abs_clients.iceberg.entries import (
    Added,
    Entries,
    added,
    file_schema,
    forgotten,
    misfits,
)
from abs_clients.iceberg.errors import ConflictError, mapped, text_of
from abs_clients.iceberg.history import history_of, is_ancestor
from abs_clients.iceberg.partitions import named, sources_of
from abs_clients.iceberg.problems import (
    Problem,
    check_commit,
    check_location,
    check_names,
    notes_of,
    problems_of,
)
from abs_clients.iceberg.vended import KEY, server_of, vended
from abs_clients.s3.server import Server, Vended
from abs_clients.tablelog import TableHistory
from abs_core.errors import RefusedError, SchemaError
from abs_core.strictjson import reading

_NONE = pa.schema([])

_MERGED = {TableProperties.MANIFEST_MERGE_ENABLED: "true"}
"""Properties of a table that is created: without merging, each commit adds a manifest for good."""


def snapshot_at(place: str) -> int:
    """The id of the snapshot at a place (``IcebergSnapshot.place_of``)."""
    return int(place.split()[1])


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """An Iceberg table's address.

    Args:
        catalog: its name in pyiceberg's configuration.
        name: with its namespace: ``db.events``.
        given: properties of the catalog, which may hold secrets.
        server: of buckets with data; used where the properties do not say another.
    """

    catalog: str
    name: str
    given: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    server: Server = field(default_factory=Server)

    def load(self) -> IcebergSnapshot | None:
        """The newest state; None: there is no table.

        Raises:
            TargetError: the catalog does not answer, or the table cannot be read.
        """
        with mapped(f"loading the Iceberg table {self.name}"):
            try:
                return IcebergSnapshot(self._loaded(), self.name)
            except FileNotFoundError:
                # A commit of others has removed old metadata, between the catalog's answer and here.
                return IcebergSnapshot(self._loaded(), self.name)
            except NoSuchTableError:
                return None

    def check_may_create(self, schema: pa.Schema) -> None:
        """Raise as ``create``; RefusedError, too, if the namespace is missing."""
        check_names(schema)
        namespace = self.name.rpartition(".")[0]
        doing = f"looking for the namespace {namespace} of the Iceberg table {self.name}"
        # A catalog may let nobody look into namespaces: then the creation tells.
        with mapped(doing), suppress(ForbiddenError):
            self._opened().load_namespace_properties(namespace)
        try:
            Catalog._convert_schema_if_needed(schema)
        except (UnsupportedPyArrowTypeException, ValueError) as error:
            raise _typeless(error) from error

    def create(self, schema: pa.Schema, partitions: Sequence[str]) -> None:
        """Make the table; nothing if somebody else just did.

        Raises:
            SchemaError: Iceberg has no type for a column.
        """
        with mapped(f"creating the Iceberg table {self.name}"):
            try:
                making = self._opened().create_table_transaction(
                    self.name, schema=schema, properties=_MERGED
                )
                check_location(making.table_metadata.location)
                with making, making.update_spec() as spec:
                    for column in partitions:
                        spec.add_identity(column)
            except (UnsupportedPyArrowTypeException, ValueError, ValidationError) as error:
                raise _typeless(error) from error
            except (TableAlreadyExistsError, CommitFailedException):
                if self.load() is None:
                    raise

    def read(self, place: str | None = None) -> pa.RecordBatchReader:
        """The rows that a reader sees now, or in the snapshot at a place (``place_of``).

        Raises:
            RefusedError: that snapshot has expired.
        """
        with mapped(f"reading the Iceberg table {self.name}"):
            table = self._loaded()
            snapshot = None if place is None else snapshot_at(place)
            if snapshot is not None and table.snapshot_by_id(snapshot) is None:
                raise RefusedError(
                    f"The Iceberg table {self.name} no longer has the snapshot {snapshot}.",
                    remedy="read a newer epoch, and let snapshots expire later.",
                )
            return table.scan(snapshot_id=snapshot).to_arrow_batch_reader()

    def widen(self, columns: pa.Schema) -> None:
        """Add columns that the table lacks, so that they have ids before files are written.

        A lost race with another change does nothing: load again and look.

        Raises:
            SchemaError: Iceberg has a name for itself.
        """
        check_names(columns)
        with mapped(f"adding columns to the Iceberg table {self.name}"):
            table = self._loaded()
            table.catalog = cast("Catalog", _Keeping(table.catalog))
            names = {field.name for field in table.schema().fields}
            # One that is there by now stays as it is: the library would give it the wider type.
            lacking = pa.schema([column for column in columns if column.name not in names])
            with suppress(ConflictError), table.update_schema() as schema:
                schema.union_by_name(lacking)

    def vend(self) -> Vended:
        """Credentials for the table's files, see ``abs_clients.s3.server.Vendor``.

        Raises:
            RefusedError: the catalog vends none any more.
        """
        with mapped(f"asking for credentials for the Iceberg table {self.name}"):
            properties = self._loaded().io.properties
        if KEY not in properties:
            raise RefusedError(
                f"The catalog vends no credentials for the table {self.name} any more.",
                remedy="start the query again, with credentials as boto3 finds them.",
            )
        return vended(properties)

    def history(self) -> TableHistory:
        """The commits that the metadata still has."""
        with mapped(f"reading the manifests of the Iceberg table {self.name}"):
            return history_of(self._loaded())

    def _loaded(self) -> Table:
        return self._opened().load_table(self.name)

    def _opened(self) -> Catalog:
        # A connection must not be shared with a forked process.
        return opened(os.getpid(), self.catalog, self.given, self.server)


def _typeless(error: Exception) -> SchemaError:
    return SchemaError(
        f"Iceberg has no type for a column: {text_of(error)}.",
        remedy="cast or drop the column in Spark.",
    )


class IcebergSnapshot:
    """A table as of one moment."""

    log_is_read = True

    def __init__(self, table: Table, name: str) -> None:
        self._table = table
        self._name = name

    @property
    def id(self) -> str:
        return str(self._table.metadata.table_uuid)

    @property
    def location(self) -> str:
        return self._table.location().rstrip("/")

    @property
    def schema(self) -> pa.Schema:
        return self._table.schema().as_arrow()

    @property
    def partitions(self) -> tuple[str, ...]:
        return named(self._table.spec(), self._table.schema())

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(sources_of(self._table.spec(), self._table.schema()))

    def problems(self) -> list[Problem]:
        """What of this table a writer of plain files cannot keep, and what is to be done instead."""
        return list(problems_of(self._table))

    def notes(self) -> list[Problem]:
        """What is not done as the table asks, and does no harm."""
        return list(notes_of(self._table))

    def written(self, columns: pa.Schema) -> pa.Schema:
        """The columns as data files have them; see ``entries.file_schema``."""
        return file_schema(self._table.schema(), columns)

    def server(self, address: IcebergTable) -> Server | None:
        """Of the table's files, with credentials that the catalog vends; None: it vends none."""
        of_table, of_catalog = self._table.io.properties, self._table.catalog.properties
        if KEY not in of_table or of_table[KEY] == of_catalog.get(KEY):
            return None
        return server_of(of_table, address.server, address)

    def misfits(self, written: pa.Schema) -> list[str] | None:
        """See ``entries.misfits``."""
        return misfits(written, self._table.schema())

    def forgotten(self, files: Sequence[Any]) -> list[str]:
        """The partition fields of these files that no specification of the table has any more."""
        with _reading_entry():
            names = {forgotten(file.stats, self._table.metadata) for file in files if file.stats}
        return sorted(name for name in names if name is not None)

    def entries(self) -> Entries:
        """What makes the entries of files that are written now."""
        return Entries(self._table.metadata)

    def version_of(self, application: str) -> int | None:
        # A person may remove the property or set it back, and snapshots expire: either tells it.
        # Where it and the newest snapshot with a version agree, older ones are not looked at.
        version = self._table.properties.get(application)
        versions = [version]
        for snapshot in reversed(self._table.metadata.snapshots):
            versions.append(_summary(snapshot).get(application))
            if version is not None and versions[-1] == version:
                break
        return max((int(one) for one in versions if one is not None), default=None)

    def place_of(self, mark: Any) -> str | None:
        """Sequence number and id of the mark's snapshot; None if it has expired."""
        for snapshot in reversed(self._table.metadata.snapshots):
            if _summary(snapshot).get(mark.application) == str(mark.version):
                return f"{snapshot.sequence_number or 0} {snapshot.snapshot_id}"
        return None

    def has(self, place: str) -> bool | None:
        """Whether the snapshot at that place is an ancestor of ``main``; None: that has expired."""
        return is_ancestor(self._table.metadata, place)

    def is_empty(self) -> bool:
        return self._table.current_snapshot() is None

    def add(self, files: Sequence[Any], mark: Any, columns: pa.Schema = _NONE) -> bool:
        """One commit from this very moment; see ``abs_sinks.lake.table.Snapshot``."""
        self._table.catalog = cast("Catalog", _Keeping(self._table.catalog))
        self._table.metadata = _slim(self._table.metadata)
        with mapped(f"committing to the Iceberg table {self._name}"):
            check_commit(self._table)
            try:
                self._commit(self._table.transaction(), files, mark, columns)
            except ConflictError:
                return False
            except FileNotFoundError:
                # Others have committed, and removed what only older states name; or it is lost.
                if not self._has_moved():
                    raise
                return False
        return True

    def _has_moved(self) -> bool:
        now = self._table.catalog.load_table(self._table.name())
        return bool(now.metadata_location != self._table.metadata_location)

    def _commit(
        self, transaction: Transaction, files: Sequence[Any], mark: Any, columns: pa.Schema
    ) -> None:
        if columns.names:
            with transaction.update_schema() as schema:
                schema.union_by_name(columns)
        # For `abs audit duplicates`.
        properties = mark.properties
        paths = [f"{self.location}/data/{file.path}" for file in files]
        if any(not file.stats for file in files):  # of a release that made no entries
            transaction.add_files(
                paths, snapshot_properties=properties, check_duplicate_files=False
            )
        else:
            # Without files, too: a change of properties alone moves no branch, and stops nobody.
            metadata = self._table.metadata
            append(
                transaction,
                self._table.io,
                list(map(partial(_added, metadata), files, paths)),
                properties,
            )
        transaction.set_properties({mark.application: str(mark.version)})
        transaction.commit_transaction()


def _summary(snapshot: Snapshot) -> Mapping[str, str]:
    """What a commit said of itself."""
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def _reading_entry() -> AbstractContextManager[None]:
    return reading("The entry of a file", "do not delete the register: restore it")


def _added(metadata: TableMetadata, file: Any, path: str) -> Added:
    with _reading_entry():
        try:
            return added(file.stats, path, file.size, file.rows, metadata)
        except LookupError as error:
            raise RefusedError(
                f"The table has forgotten the partition fields {error}, under which a decided file was "
                "written.",
                remedy="add them to the table again; remove them when the epoch is in it.",
            ) from error


class _Keeping:
    """A catalog after whose conflicts the library neither tries again nor deletes manifests.

    Its retry does not look for the mark. And where a client or a proxy sends a request again after a
    lost reply, the conflict is with the commit itself: without its manifests nobody can read the table.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def commit_table(self, table: Table, *changes: Any) -> Any:
        try:
            answer = self._catalog.commit_table(table, *changes)
        except CommitFailedException as error:
            raise ConflictError from error
        keep(self._catalog, table, answer)
        return answer


def _slim(metadata: TableMetadata) -> TableMetadata:
    """What a commit starts from: the library copies the metadata 19 times for each.

    Without snapshots that no branch or tag is at, and without logs, but for the one by which the
    library deletes old metadata files.
    """
    heads = {metadata.current_snapshot_id, *(ref.snapshot_id for ref in metadata.refs.values())}
    kept = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id in heads]
    slim: dict[str, list[Any]] = {"snapshots": kept, "snapshot_log": []}
    if TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED not in metadata.properties:
        slim["metadata_log"] = []
    return metadata.model_copy(update=slim)
