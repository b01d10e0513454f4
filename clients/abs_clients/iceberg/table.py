"""An Iceberg table, by ``pyiceberg``.

The project leans on these behaviours of the library, see ``tests/clients/test_iceberg_table.py``:

- A commit that adds files demands that the branch ``main`` is where it was when the table was loaded.
  After a ``CommitFailedException`` of the catalog the library appends the stale commit again, and at
  last deletes its manifests. It does neither after another exception.
- A property set in the same transaction appears with the files, and outlives the snapshots' expiry.
- ``add_files`` reads each footer again, takes partition values from its statistics, and maps columns by
  name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, cast

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    TableAlreadyExistsError,
    UnauthorizedError,
    ValidationError,
)
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import MappedField
from pyiceberg.transforms import IdentityTransform
from sqlalchemy.exc import SQLAlchemyError

from abs_clients.iceberg.history import history_of
from abs_clients.s3.client import credentials
from abs_clients.s3.server import Server
from abs_clients.tablelog import TableHistory
from abs_core.errors import AbsError, ConfigError, RefusedError, SchemaError, UnavailableError

Problem = tuple[str, str]

_NONE = pa.schema([])

_MERGED = {TableProperties.MANIFEST_MERGE_ENABLED: "true"}
"""Properties of a table that is created: without merging, each commit adds a manifest for good."""

_VENDED = {"s3.access-key-id", "s3.session-token", "s3.signer", "s3.remote-signing-enabled"}
"""Keys of a REST catalog's answer that hold credentials of a table, or ask for signing."""

_MAPPING = TableProperties.DEFAULT_NAME_MAPPING


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
        with _mapped(f"loading the Iceberg table {self.name}"):
            try:
                return IcebergSnapshot(self._loaded(), self.name)
            except NoSuchTableError:
                return None

    def create(self, schema: pa.Schema, partitions: Sequence[str]) -> None:
        """Make the table; nothing if somebody else just did.

        Raises:
            SchemaError: Iceberg has no type for a column.
        """
        with _mapped(f"creating the Iceberg table {self.name}"):
            try:
                making = self._opened().create_table_transaction(
                    self.name, schema=schema, properties=_MERGED
                )
                with making, making.update_spec() as spec:
                    for column in partitions:
                        spec.add_identity(column)
            except (UnsupportedPyArrowTypeException, ValueError, ValidationError) as error:
                raise SchemaError(
                    f"Iceberg has no type for a column: {_text(error)}.",
                    remedy="cast or drop the column in Spark.",
                ) from error
            except (TableAlreadyExistsError, CommitFailedException):
                if self.load() is None:
                    raise

    def read(self) -> pa.RecordBatchReader:
        """The rows that a reader sees now."""
        with _mapped(f"reading the Iceberg table {self.name}"):
            return self._loaded().scan().to_arrow_batch_reader()

    def stats_of(self, footer: Any) -> str:
        """Nothing: the library reads footers again when it adds files."""
        return ""

    def history(self) -> TableHistory:
        """The commits that the metadata still has."""
        with _mapped(f"reading the manifests of the Iceberg table {self.name}"):
            return history_of(self._loaded())

    def _loaded(self) -> Table:
        return self._opened().load_table(self.name)

    def _opened(self) -> Catalog:
        # A connection must not be shared with a forked process.
        return _catalog(os.getpid(), self.catalog, self.given, self.server)


class IcebergSnapshot:
    """A table as of one moment."""

    def __init__(self, table: Table, name: str) -> None:
        self._table = table
        self._name = name
        self._fields = table.spec().fields

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
        schema = self._table.schema()
        return tuple(schema.find_column_name(each.source_id) or "" for each in self._fields)

    def problems(self) -> list[Problem]:
        """What of this table a writer of plain files cannot keep, and what is to be done instead."""
        version = self._table.metadata.format_version
        newer = (
            f"The table has format version {version}.",
            "write to a table of version 2: newer ones are not written by pyiceberg.",
        )
        vended = (
            "The catalog vends credentials for the table, which data files are not written with.",
            "switch it off in the catalog, and give the job credentials as boto3 finds them.",
        )
        remedy = "add a column with that value in Spark, and partition by it."
        hidden = [f for f in self._fields if not isinstance(f.transform, IdentityTransform)]
        return [
            *([newer] if version > 2 else []),
            *([vended] if _VENDED & set(self._table.config) else []),
            *self._unmapped(),
            *((f"The table is partitioned by {f.name} ({f.transform}).", remedy) for f in hidden),
        ]

    def _unmapped(self) -> Iterator[Problem]:
        """Readers go by the names in this property: a column that it lacks would be NULL."""
        mapping = self._table.name_mapping() if _MAPPING in self._table.properties else None
        lacking = set(self._table.schema().field_ids) - set(_ids(mapping.root if mapping else ()))
        if mapping is not None and lacking:
            schema = self._table.schema()
            names = ", ".join(sorted(schema.find_column_name(each) or "" for each in lacking))
            yield (
                f"The table's property {_MAPPING} lacks {names}: readers would see NULL there.",
                "add it there, or remove the property.",
            )

    def version_of(self, application: str) -> int | None:
        found = self._table.properties.get(application)
        return None if found is None else int(found)

    def is_empty(self) -> bool:
        return self._table.current_snapshot() is None

    def add(self, files: Sequence[Any], mark: Any, columns: pa.Schema = _NONE) -> bool:
        """One commit from this very moment; see ``abs_sinks.lake.table.Snapshot``."""
        self._table.catalog = cast("Catalog", _Keeping(self._table.catalog))
        self._table.metadata = _slim(self._table.metadata)
        paths = [f"{self.location}/data/{file.path}" for file in files]
        with _mapped(f"committing to the Iceberg table {self._name}"):
            try:
                self._commit(self._table.transaction(), paths, mark, columns)
            except _ConflictError:
                return False
        return True

    def _commit(
        self, transaction: Transaction, paths: list[str], mark: Any, columns: pa.Schema
    ) -> None:
        if columns.names:
            with transaction.update_schema() as schema:
                schema.union_by_name(columns)
        told = {**mark.told, mark.application: str(mark.version)}  # for `abs audit duplicates`
        if paths:
            transaction.add_files(paths, snapshot_properties=told, check_duplicate_files=False)
        else:
            # A snapshot without files moves the branch: a change of properties alone stops nobody.
            with transaction.update_snapshot(snapshot_properties=told).fast_append():
                pass
        transaction.set_properties({mark.application: str(mark.version)})
        transaction.commit_transaction()


class _ConflictError(Exception):
    """The catalog says that the table has moved; the commit may have been what moved it."""


class _Keeping:
    """A catalog after whose conflicts the library neither tries again nor deletes manifests.

    Its retry does not look for the mark. And where a client or a proxy sends a request again after a
    lost reply, the conflict is with the commit itself: without its manifests nobody can read the table.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def commit_table(self, *commit: Any) -> Any:
        try:
            return self._catalog.commit_table(*commit)
        except CommitFailedException as error:
            raise _ConflictError from error


def _slim(metadata: TableMetadata) -> TableMetadata:
    """What a commit starts from: the library copies the metadata 19 times for each.

    Without snapshots that no branch or tag is at, and without logs, but for the one by which the
    library deletes old metadata files.
    """
    heads = {metadata.current_snapshot_id, *(ref.snapshot_id for ref in metadata.refs.values())}
    kept = [each for each in metadata.snapshots if each.snapshot_id in heads]
    slim: dict[str, list[Any]] = {"snapshots": kept, "snapshot_log": []}
    if TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED not in metadata.properties:
        slim["metadata_log"] = []
    return metadata.model_copy(update=slim)


def _ids(fields: Sequence[MappedField]) -> Iterator[int]:
    for each in fields:
        if each.field_id is not None:
            yield each.field_id
        yield from _ids(each.fields)


@lru_cache(maxsize=64)
def _catalog(
    process: int, name: str, given: tuple[tuple[str, str], ...], server: Server
) -> Catalog:
    seconds = f"{server.timeout:.0f}"
    properties = {"s3.request-timeout": seconds, "s3.connect-timeout": seconds, **dict(given)}
    if server.endpoint is not None:
        key, secret, token, region = credentials(server)
        ours = {
            "s3.endpoint": server.endpoint,
            "s3.access-key-id": key,
            "s3.secret-access-key": secret,
            "s3.session-token": token,
            "s3.region": region,
        }
        properties = {**{k: v for k, v in ours.items() if v}, **properties}
    try:
        opened = load_catalog(name, **properties)
    except (ValueError, NotInstalledError) as error:
        raise ConfigError(
            f"The Iceberg catalog {name} cannot be opened: {type(error).__name__}.",
            remedy="give its properties as catalog.type (sql, rest, glue, hive), catalog.uri and so "
            "on, or by its name in pyiceberg's configuration file.",
        ) from error
    if opened.properties.get("py-catalog-impl") or isinstance(opened, InMemoryCatalog):
        raise ConfigError(
            f"The Iceberg catalog {name} is a {type(opened).__name__}, of which it is not known that "
            "it compares and sets for all processes.",
            remedy="use a catalog of type sql, rest, glue or hive.",
        )
    if isinstance(opened, RestCatalog):
        session: Any = opened._session
        # The library waits for ever, and asks for credentials that data files are not written with.
        session.request = partial(session.request, timeout=server.timeout)
        session.headers.pop("X-Iceberg-Access-Delegation", None)
    return opened


@contextmanager
def _mapped(doing: str) -> Iterator[None]:
    """Maps the library's exceptions; never shows the catalog's properties (I9)."""
    try:
        yield
    except NoSuchTableError as error:
        raise RefusedError(
            f"There is no Iceberg table: {doing}.", remedy="create it, or set createtable=true."
        ) from error
    except NoSuchNamespaceError as error:
        raise RefusedError(
            f"The namespace does not exist, {doing}.", remedy="create it in the catalog."
        ) from error
    except (UnauthorizedError, ForbiddenError, BadRequestError) as error:
        raise RefusedError(
            f"The catalog refuses, {doing}: {type(error).__name__}.",
            remedy="look at its credentials and rights.",
        ) from error
    except SQLAlchemyError as error:
        raise UnavailableError(
            f"The catalog's database does not answer, {doing}: {type(error).__name__}."
        ) from error
    except (AbsError, _ConflictError):
        raise
    except Exception as error:
        # The library has no common base of its errors; after any of them the outcome is unknown.
        raise UnavailableError(
            f"The catalog or the store does not answer, {doing}: {type(error).__name__}: "
            f"{_text(error)}."
        ) from error


def _text(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].strip().rstrip(".") if lines else ""
