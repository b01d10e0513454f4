"""An Iceberg table of a catalog, for the checks of the contract."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path

from pyiceberg.catalog import Catalog, load_catalog

from abs_core.contracts import Sink
from abs_sinks.iceberg import IcebergOptions, IcebergSink
from abs_sinks.lake.folder import TableFiles
from abs_sinks.s3.layout import handle_of
from abs_testing import SCHEMA, Row


def catalog_in(
    folder: Path, warehouse: str | None = None, uri: str | None = None
) -> dict[str, str]:
    """The properties of a catalog in SQLite, or in another database, with a namespace ``db``."""
    folder.mkdir(parents=True, exist_ok=True)
    given = {
        "type": "sql",
        "uri": uri or f"sqlite:///{folder}/catalog.db",
        "warehouse": warehouse or f"file://{folder}/warehouse",
    }
    load_catalog("default", **given).create_namespace_if_not_exists("db")
    return given


class TableHarness:
    """A table of its own, made at the first use: what ``check_sink`` drives, and looks into.

    Args:
        catalog: the properties of one that many tests use; where none are given, in SQLite below the
            folder, or in the database at ``uri``.
    """

    own_register = True

    def __init__(
        self,
        folder: Path,
        warehouse: str | None,
        given: Mapping[str, str],
        uri: str | None = None,
        catalog: Mapping[str, str] | None = None,
    ) -> None:
        number = secrets.token_hex(6)
        if catalog is None:
            catalog = catalog_in(folder / number, warehouse and f"{warehouse}/{number}", uri)
            self.name = "db.t"
        else:
            self.name = f"db_{number}.t"
            load_catalog("default", **catalog).create_namespace(f"db_{number}")
        self.catalog = dict(catalog)
        properties = {f"catalog.{name}": value for name, value in self.catalog.items()}
        asked = {"table": self.name, "createtable": "true", **properties, **given}
        self.options = IcebergOptions.parse(asked)
        self.new_sink: Callable[[], Sink] = partial(IcebergSink, self.options, SCHEMA)

    @property
    def foreign(self) -> Catalog:
        """A catalog as another process has it."""
        server = self.options.server.endpoint
        return load_catalog(
            "default", **self.catalog, **({"s3.endpoint": server} if server else {})
        )

    def remake(self) -> None:
        """See ``abs_testing.Remaking``."""
        schema = self.foreign.load_table(self.name).schema()
        self.foreign.purge_table(self.name)
        self.foreign.create_table(self.name, schema)

    def backup(self) -> Callable[[], None]:
        """See ``abs_testing.GoingBack``: by a rollback of ``main``."""
        snapshot = self.foreign.load_table(self.name).current_snapshot()
        assert snapshot is not None

        def restore() -> None:
            table = self.foreign.load_table(self.name)
            table.manage_snapshots().set_current_snapshot(snapshot.snapshot_id).commit()

        return restore

    def read(self) -> Sequence[Row]:
        if self.options.address.load() is None:
            return []
        rows = self.options.address.read().read_all()
        return list(zip(rows["id"].to_pylist(), rows["value"].to_pylist(), strict=True))

    def leftovers(self, job: str) -> Sequence[str]:
        """Files that are prepared, and data files that no snapshot names."""
        place = self.place()
        if place is None:
            return []
        found = [each.key for each in place.store().list(place.options.path.folder)]
        return [*(key for key in found if self._is_of(job, key)), *self._orphans(job)]

    def place(self) -> TableFiles | None:
        return self.options.place(self.options.address.load())

    def _orphans(self, job: str) -> list[str]:
        snapshot = self.options.address.load()
        assert snapshot is not None
        if not snapshot.location.startswith("file:"):
            return []
        named = {task.file.file_path for task in snapshot._table.scan().plan_files()}
        folder = Path(snapshot.location.removeprefix("file://"))
        there = [f"file://{path}" for path in folder.rglob("*.parquet")]
        return [file for file in there if file not in named and self._is_of(job, file)]

    @staticmethod
    def _is_of(job: str, key: str) -> bool:
        handle = handle_of(key)
        return handle is None or handle.job == job

    def close(self) -> None:
        """Nothing: the test's folder goes as a whole."""


def open_table(
    folder: Path,
    warehouse: str | None,
    given: Mapping[str, str],
    uri: str | None = None,
    catalog: Mapping[str, str] | None = None,
) -> AbstractContextManager[TableHarness]:
    """A harness on a new table, in a catalog of its own or in one that is given."""
    return closing(TableHarness(folder, warehouse, given, uri, catalog))
