"""Opens Iceberg catalogs, once in each process."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import SNAPSHOT_LOADING_MODE, RestCatalog
from pyiceberg.exceptions import NotInstalledError
from pyiceberg.io import FileIO
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Identifier

from abs_clients.iceberg.errors import text_of
from abs_clients.iceberg.vended import store_properties
from abs_clients.s3.server import Server
from abs_core.errors import ConfigError


@lru_cache(maxsize=64)
def opened(process: int, name: str, pairs: tuple[tuple[str, str], ...], server: Server) -> Catalog:
    """The catalog with these properties, one for each process.

    Raises:
        ConfigError: it cannot be opened, or may take two commits for one.
        RefusedError: boto3 finds no credentials for the store, and the catalog vends none.
    """
    seconds = f"{server.timeout:.0f}"
    properties = {"s3.request-timeout": seconds, "s3.connect-timeout": seconds, **dict(pairs)}
    of_store, missing = store_properties(server)
    properties = {**of_store, **properties}
    try:
        catalog = load_catalog(name, **properties)
    except NotInstalledError as error:
        raise ConfigError(
            f"The Iceberg catalog {name} needs a package that is not installed: {text_of(error)}.",
            remedy="pip install 'abs-sinks[iceberg-sql]', if its type is sql; of another type, what "
            "pyiceberg names. For a job, in Spark's Python on the driver and on every executor.",
        ) from error
    except ValueError as error:
        raise ConfigError(
            f"The Iceberg catalog {name} cannot be opened: {type(error).__name__}.",
            remedy="give its properties as catalog.type (sql, rest, glue, hive), catalog.uri and so "
            "on, or by its name in pyiceberg's configuration file.",
        ) from error
    # By its name: its module loads sqlalchemy, which comes with the extra iceberg-sql alone.
    if catalog.properties.get("py-catalog-impl") or type(catalog).__name__ == "InMemoryCatalog":
        raise ConfigError(
            f"The Iceberg catalog {name} is a {type(catalog).__name__}, of which it is not known that "
            "it compares and sets for all processes.",
            remedy="use a catalog of type sql, rest, glue or hive.",
        )
    if missing is not None and not isinstance(catalog, RestCatalog):  # which may vend credentials
        raise missing
    if isinstance(catalog, RestCatalog):
        session: Any = catalog._session
        session.request = partial(session.request, timeout=server.timeout)  # it waits for ever
        catalog.properties.pop(SNAPSHOT_LOADING_MODE, None)  # marks are in all snapshots
        setattr(catalog, _LOAD, _Loaded(catalog))
    elif (parse := getattr(catalog, _PARSE, None)) is not None:
        setattr(catalog, _PARSE, _Parsed(catalog, parse))
    return catalog


def keep(catalog: Any, table: Table, answer: CommitTableResponse) -> None:
    """Keep the state that a commit has made, for the next load; see ``_Parsed`` and ``_Loaded``."""
    for name in (_PARSE, _LOAD):
        if isinstance(keeper := getattr(catalog, name, None), _Parsed | _Loaded):
            keeper.states[table.name()] = _State(answer.metadata_location, answer.metadata)


_LOAD = "load_table"
_PARSE = "_convert_orm_to_iceberg"
"""What an SQL catalog makes a table of its row by."""


class _Parsed:
    """Parses a metadata file once, which grows with each snapshot, and keeps each table's newest state.

    The database says at each load which file that is, and such a file never changes. The store is asked
    for its length: one that is gone is an error.
    """

    def __init__(self, catalog: Any, parse: Callable[[Any], Table]) -> None:
        self.states: dict[Identifier, _State] = {}
        self._catalog = catalog
        self._parse = parse

    def __call__(self, row: Any) -> Table:
        name = (*Catalog.identifier_to_tuple(row.table_namespace), row.table_name)
        state = self.states.get(name)
        if state is not None and state.place == row.metadata_location:
            io = self._catalog._load_file_io(state.metadata.properties, state.place)
            if state.is_in(io):
                return Table(name, state.metadata, state.place, io, self._catalog)
        table = self._parse(row)
        self.states[name] = _State(table.metadata_location, table.metadata)
        return table


class _Loaded:
    """Loads a table of a REST catalog, and its history only if another commit has changed it.

    The history grows with each snapshot. Without it the server says at each load which metadata file is
    the table's, and which credentials it vends; a server that always sends all is asked as before.
    """

    def __init__(self, catalog: RestCatalog) -> None:
        self.states: dict[Identifier, _State] = {}
        self._catalog = catalog
        self._whole = catalog.load_table
        self._brief = copy(catalog)  # one session for both
        self._brief.properties = {**catalog.properties, SNAPSHOT_LOADING_MODE: "refs"}

    def __call__(self, identifier: str | Identifier) -> Table:
        name = Catalog.identifier_to_tuple(identifier)
        if (state := self.states.get(name)) is not None:
            brief: Table = self._brief.load_table(name)
            # Not by the place alone: a catalog that was restored may give one to other metadata.
            same = state.place == brief.metadata_location
            if same and _brief(state.metadata) == _brief(brief.metadata):
                kept = state.metadata, state.place
                return Table(name, *kept, brief.io, self._catalog, brief.config)
        table: Table = self._whole(name)
        self.states[name] = _State(table.metadata_location, table.metadata)
        return table


def _brief(metadata: TableMetadata) -> TableMetadata:
    """The metadata without history."""
    return metadata.model_copy(update={"snapshots": [], "snapshot_log": []})


@dataclass(slots=True)
class _State:
    """A table's metadata, and the file that has them."""

    place: str
    metadata: TableMetadata
    length: int | None = None

    def is_in(self, io: FileIO) -> bool:
        """Whether the file is as it was.

        Raises:
            FileNotFoundError: it is gone.
        """
        length = len(io.new_input(self.place))
        self.length = self.length or length
        return length == self.length
