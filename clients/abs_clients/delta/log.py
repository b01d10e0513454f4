"""The log of a Delta table, by ``deltalake``.

The project leans on these behaviours of the library, which ``tests/clients/test_delta_log.py`` holds:

- ``create_write_transaction`` with ``max_commit_retries=0`` writes the version after the loaded one, or
  fails if somebody else has: a compare-and-set. With its default it retries, and from a fresh snapshot
  it writes an application transaction a second time: so nobody may retry without looking.
- ``transaction_version`` is as of the loaded snapshot, also from a checkpoint of the log.
- ``AddAction.path`` is taken as it is on disk; the library encodes it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from abs_clients.arrow import plain_type
from abs_clients.delta.entries import DeltaEntries
from abs_clients.delta.errors import is_missing, mapped, text_of
from abs_clients.delta.evolve import actions_of, put_version
from abs_clients.delta.history import history_of, is_kept, rows_of
from abs_clients.delta.problems import Problem, problems_of
from abs_clients.s3.client import credentials
from abs_clients.s3.location import Location
from abs_clients.s3.objects import Objects
from abs_clients.s3.server import Bucket, Server
from abs_clients.tablelog import TableHistory
from abs_core.durable import names_in
from abs_core.errors import SchemaError, TargetError, UnavailableError

_NONE = pa.schema([])

LOOKED_AT = 1000
"""Versions of the log in which a commit is looked for."""

CHECKPOINT = 10
"""Versions of the log between checkpoints, where the table does not say; as Delta's own writers."""


@dataclass(frozen=True, slots=True)
class DeltaLog:
    """A Delta table's address.

    Args:
        url: ``s3://bucket/prefix``, or the path of a folder.
        server: of the bucket; None for a folder.
    """

    url: str
    server: Server | None = None

    @property
    def uri(self) -> str:
        """As the library takes it: it decodes the URL of a bucket, and takes a folder as it is."""
        return self.url if self.server is None else quote(self.url, safe=":/")

    def load(self) -> DeltaSnapshot | None:
        """The newest snapshot; None: there is no table.

        Raises:
            TargetError: the store does not answer, or the log cannot be read.
        """
        with mapped(f"loading the Delta table {self.url}"):
            try:
                return DeltaSnapshot(self._table(), self)
            except TableNotFoundError:
                return None
            except (DeltaError, OSError) as error:
                if not is_missing(error):
                    raise
                # Others have cleaned the log since it was listed.
                return DeltaSnapshot(self._table(), self)

    def check_may_create(self, schema: pa.Schema) -> None:
        """Raise as ``create``. A table is a folder, whose parents are made with it."""
        self._wanted(schema)

    def _wanted(self, schema: pa.Schema) -> Schema:
        try:
            wanted = Schema.from_arrow(schema)
        except Exception as error:
            raise SchemaError(
                f"Delta has no type for a column: {text_of(error)}.",
                remedy="cast or drop the column in Spark.",
            ) from error
        kinds = {kind for field in schema for kind in _clocks(field.type)}
        if kinds == {_IN_MAP}:
            raise SchemaError(
                "deltalake makes no readable table that has a TIMESTAMP_NTZ in maps alone.",
                remedy="cast it to TIMESTAMP in Spark, or let Spark make the table.",
            )
        return wanted

    def create(self, schema: pa.Schema, partitions: Sequence[str]) -> None:
        """Make the table; nothing if somebody else just did.

        Raises:
            SchemaError: Delta has no type for a column.
        """
        wanted = self._wanted(schema)
        with mapped(f"creating the Delta table {self.url}"):
            try:
                DeltaTable.create(
                    self.uri,
                    wanted,
                    mode="error",
                    partition_by=list(partitions),
                    storage_options=self._storage(),
                    # After a conflict the library would write its own metadata, with another id,
                    # over the table that somebody else has just made.
                    commit_properties=CommitProperties(max_commit_retries=0),
                )
            except DeltaError:
                if self.load() is None:
                    raise

    def read(self, place: str | None = None) -> pa.RecordBatchReader:
        """The rows that a reader sees now, or in the version at a place (``place_of``).

        Raises:
            RefusedError: there is no table, or that version is gone.
        """
        with mapped(f"reading the Delta table {self.url}"):
            dataset = self._table(None if place is None else int(place)).to_pyarrow_dataset()
            return dataset.scanner().to_reader()

    def widen(self, columns: pa.Schema) -> None:
        """Nothing: the commit of the rows adds columns, as they are found by name."""

    def history(self) -> TableHistory:
        """The commits that the log still has.

        Raises:
            RefusedError: there is no table.
        """
        with mapped(f"reading the log of {self.url}"):
            live = rows_of(self._table())
            log = sorted(self._versions())
            first = log[0][0] if log else 0
            before = rows_of(self._table(first)) if first else {}
            return history_of(log, before, live)

    def _versions(self) -> Iterator[tuple[int, str]]:
        """Number and lines of each version of the log."""
        if self.server is None:
            log = Path(self.url, "_delta_log")
            for path in map(log.joinpath, names_in(log)):
                if path.suffix == ".json" and path.stem.isdecimal():
                    yield int(path.stem), path.read_text()
            return
        place = Location.parse(self.url)
        objects = Objects(Bucket(self.server, place.bucket))
        for listed in objects.list(f"{place.folder}_delta_log/"):
            name = listed.key.rpartition("/")[2]
            if name.endswith(".json") and name.removesuffix(".json").isdecimal():
                body = objects.get(listed.key)
                if body is not None:
                    yield int(name.removesuffix(".json")), body.data.decode()

    def _table(self, version: int | None = None) -> DeltaTable:
        return DeltaTable(self.uri, version, self._storage())

    def _storage(self) -> dict[str, str] | None:
        """Options of the library's own S3 client; credentials by boto3's chain."""
        if self.server is None:
            return None
        server = self.server
        key, secret, token, region = credentials(server)
        options = {
            "aws_access_key_id": key,
            "aws_secret_access_key": secret,
            "aws_session_token": token,
            "aws_region": region,
            "aws_endpoint_url": server.endpoint,
            "aws_virtual_hosted_style_request": str(not server.pathstyle).lower(),
            "aws_allow_http": "true",
            "aws_conditional_put": "etag",
            "timeout": f"{server.timeout:.0f}s",
            # A put is conditional: one that is sent again after a lost reply fails, and is looked up.
            "retry_timeout": f"{server.timeout:.0f}s",
            "max_retries": "3",
        }
        return {name: text for name, text in options.items() if text}


_IN_MAP, _OUTSIDE = "in a map", "outside of maps"


def _clocks(kind: pa.DataType, where: str = _OUTSIDE) -> Iterator[str]:
    """Where a type has moments without a zone: the library looks for them outside of maps alone."""
    if pa.types.is_timestamp(kind) and kind.tz is None:
        yield where
    inner = _IN_MAP if pa.types.is_map(kind) else where
    for place in range(kind.num_fields):
        yield from _clocks(kind.field(place).type, inner)


class DeltaSnapshot:
    """A table as of one version of its log."""

    log_is_read = False
    location = ""

    def __init__(self, table: DeltaTable, log: DeltaLog) -> None:
        self._table = table
        self._log = log
        self._url = log.url
        self._metadata = table.metadata()
        self._version = table.version()
        self._added: Any = None  # the mark that was added to it
        self._seen: list[dict[str, Any]] | None = None  # the last commits, newest first

    @property
    def id(self) -> str:
        return str(self._metadata.id)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(self._table.schema().to_arrow())

    @property
    def partitions(self) -> tuple[str, ...]:
        return tuple(self._metadata.partition_columns)

    @property
    def sources(self) -> tuple[str, ...]:
        return self.partitions

    def problems(self) -> list[Problem]:
        """What of this table a writer of plain files cannot keep, and what is to be done instead."""
        return list(problems_of(self._table))

    def notes(self) -> list[Problem]:
        """Nothing."""
        return []

    def written(self, columns: pa.Schema) -> pa.Schema:
        """The columns; with one of the table more where files would have none, and so no rows.

        Raises:
            SchemaError: there is none.
        """
        if any(name not in self.partitions for name in columns.names):
            return columns
        other = next((field for field in self.schema if field.name not in self.partitions), None)
        if other is None:
            raise SchemaError(
                "The table is partitioned by all its columns: files have none, and no rows.",
                remedy="add a column to the table, or write to another one.",
            )
        return columns.append(other.with_type(plain_type(other.type)))

    def misfits(self, written: pa.Schema) -> None:
        """Nothing: columns are found by name."""

    def forgotten(self, files: Sequence[Any]) -> tuple[()]:
        """Nothing: a table has one layout, see ``partitions``."""
        return ()

    def entries(self) -> DeltaEntries:
        return DeltaEntries()

    def version_of(self, application: str) -> int | None:
        with mapped(f"reading the log of {self._url}"):
            return self._table.transaction_version(application)

    def place_of(self, mark: Any) -> str | None:
        """The version of the mark's commit; None if the log does not tell it any more."""
        if mark == self._added:
            return str(self._version + 1)
        for count in (16, LOOKED_AT):
            for commit in self._commits(count):
                if commit.get(mark.application) == str(mark.version):
                    return str(commit["version"])
        # Commits of older releases say job and epoch alone: two may be of two sinks of the job.
        alike = [
            str(commit["version"])
            for commit in self._commits(LOOKED_AT)
            if mark.told.items() <= commit.items()
            and not any(key.startswith("abs-") for key in commit)
        ]
        return alike[0] if len(alike) == 1 else None

    def has(self, place: str) -> bool | None:
        """Whether what the commit at that place added is in the history of this version.

        None: the log does not tell it any more.
        """
        behind = self._version - int(place)
        if behind <= 0:
            return behind == 0
        if behind >= LOOKED_AT:
            return None
        commits = self._commits(behind + 1)
        try:
            with mapped(f"reading older versions of {self._url}"):
                return is_kept(commits, int(place), self._log._table)
        except UnavailableError:
            raise
        except TargetError:  # what an older version is read by was cleaned away
            return None

    def _commits(self, count: int) -> list[dict[str, Any]]:
        if self._seen is None or len(self._seen) < count:
            with mapped(f"reading the log of {self._url}"):
                self._seen = self._table.history(count)
        return self._seen[:count]

    def is_empty(self) -> bool:
        return not self._table.file_uris()

    def add(self, files: Sequence[Any], mark: Any, columns: pa.Schema = _NONE) -> bool:
        """One commit from this very snapshot; see ``abs_sinks.lake.table.Snapshot``."""
        done = self._put(files, mark, columns)
        self._added = mark if done else None
        return done

    def _put(self, files: Sequence[Any], mark: Any, columns: pa.Schema) -> bool:
        if columns.names:
            actions = actions_of(self._table, columns, files, mark)
            with mapped(f"committing to the Delta table {self._url}"):
                return put_version(self._url, self._log.server, self._version + 1, actions)
        return self._append(files, mark)

    def _append(self, files: Sequence[Any], mark: Any) -> bool:
        now = int(time.time() * 1000)
        added: list[AddAction | RemoveAction] = [
            AddAction(f.path, f.size, f.values, now, True, f.stats) for f in files
        ]
        properties = CommitProperties(
            custom_metadata=mark.properties,
            max_commit_retries=0,
            app_transactions=[Transaction(mark.application, mark.version)],
        )
        with mapped(f"committing to the Delta table {self._url}"):
            try:
                self._table.create_write_transaction(
                    added,
                    "append",
                    self._table.schema(),
                    list(self.partitions),
                    commit_properties=properties,
                )
            except CommitFailedError:
                return False  # somebody else wrote this version; or the reply was lost
            self._checkpoint()
        return True

    def _checkpoint(self) -> None:
        """Write one of every tenth version: each load reads all versions after the last one."""
        settled = self._metadata.configuration.get("delta.checkpointInterval")
        version = self._table.version()  # that was loaded
        if settled is None and version and version % CHECKPOINT == 0:
            self._table.create_checkpoint()
