"""A Delta table in a folder or a bucket, for the checks of the contract."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path

from deltalake import DeltaTable

from abs_clients.s3.objects import Objects
from abs_core.contracts import Sink
from abs_core.model import HandleName
from abs_sinks.delta import DeltaOptions, DeltaSink
from abs_sinks.lake.folder import TableFiles
from abs_sinks.s3.layout import handle_of
from abs_sinks.s3.register import S3Register
from abs_testing import SCHEMA, Row


class TableHarness:
    """A table of its own, made at the first use: what ``check_sink`` drives, and looks into."""

    own_register = True

    def __init__(self, folder: str, given: Mapping[str, str]) -> None:
        path = f"{folder.rstrip('/')}/{secrets.token_hex(6)}"
        self.options = DeltaOptions.parse({"createtable": "true", **given, "path": path})
        self.new_sink: Callable[[], Sink] = partial(DeltaSink, self.options, SCHEMA)
        self.place = TableFiles(self.options.files(path), path)

    def read(self) -> Sequence[Row]:
        if self.options.address.load() is None:
            return []
        rows = self.options.address.read().read_all()
        return list(zip(rows["id"].to_pylist(), rows["value"].to_pylist(), strict=True))

    def leftovers(self, job: str) -> Sequence[str]:
        """Files that are prepared, and files in the table's folder that its log does not name."""

        def is_of_job(key: str) -> bool:
            handle: HandleName | None = handle_of(key)
            return handle is None or handle.job == job

        pending = [found.key for found in self.place.store().list(self.place.options.path.folder)]
        return [key for key in (*pending, *self._orphans()) if is_of_job(key)]

    def _orphans(self) -> list[str]:
        snapshot = self.options.address.load()
        named = set() if snapshot is None else set(snapshot._table.file_uris())
        if self.options.in_bucket:
            place = self.place.options
            found = [each.key for each in Objects(place.bucket).list(place.path.folder)]
            there = [f"s3://{place.path.bucket}/{key}" for key in found]
        else:
            there = [str(path) for path in Path(self.options.path).rglob("*.parquet")]
        data = [file for file in there if file.endswith(".parquet") and "_delta_log" not in file]
        return [file for file in data if file not in named]

    def backup(self) -> Callable[[], None]:
        """See ``abs_testing.GoingBack``: by RESTORE."""
        version = self.table().version()

        def restore() -> None:
            self.table().restore(version)

        return restore

    def remake(self) -> None:
        """See ``abs_testing.Remaking``: all but the folder of the sinks goes."""
        schema = self.table().schema()
        if self.options.in_bucket:
            place = self.place.options
            objects = Objects(place.bucket)
            keys = [each.key for each in objects.list(place.path.folder)]
            objects.delete([key for key in keys if "/_abs/" not in key])
        else:
            for path in Path(self.options.path).iterdir():
                if path.name != "_abs":
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        address = self.options.address
        DeltaTable.create(address.url, schema, storage_options=address._storage())

    def table(self) -> DeltaTable:
        """The table as others open it."""
        address = self.options.address
        return DeltaTable(address.url, storage_options=address._storage())

    def saved(self, job: str) -> Callable[[], None]:
        """See ``abs_testing.Restoring``."""
        if self.options.in_bucket:
            register = S3Register(self.place.options)
            objects, key = Objects(self.place.options.bucket), register.key(job)
            body = objects.get(key)

            def put_back() -> None:
                if body is None:
                    objects.delete([key])
                else:
                    objects.put(key, body.data)

            return put_back
        path = Path(self.options.path) / "_abs" / "register" / f"{job}.json"
        content = path.read_bytes() if path.exists() else None

        def restore() -> None:
            if content is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(content)

        return restore

    def close(self) -> None:
        """Nothing: the test's folder goes as a whole."""


def open_table(folder: str, given: Mapping[str, str]) -> AbstractContextManager[TableHarness]:
    """A harness on a new table below the folder."""
    return closing(TableHarness(folder, given))
