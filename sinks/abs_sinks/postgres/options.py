"""The options of ``abs-postgres``, read once into one typed value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Self

from abs_clients.options import (
    Option,
    Problems,
    boolean,
    fields_from,
    one_of,
    options_of,
    read_options,
    seconds,
    share,
    text,
    whole_number,
)
from abs_clients.postgres.address import Address
from abs_clients.postgres.metadata import MetadataSchema
from abs_clients.postgres.name import TableName, check_identifier
from abs_clients.postgres.server import Server
from abs_core.errors import OptionError
from abs_core.patience import Patience
from abs_sinks.options import COMMON, CommonOptions

NAME = "abs-postgres"

_COLUMN = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^",\s][^",]*?))\s*(?:,|$)')
_COLUMNS = re.compile(rf"(?:{_COLUMN.pattern})+")


def column_list(text: str) -> tuple[str, ...]:
    """Parse column names separated by commas; double quotes allow commas and quotes in a name.

    Raises:
        OptionError: not such a list, or a name occurs twice.
    """
    if not _COLUMNS.fullmatch(text):
        raise OptionError(f"{text!r} is not a list of columns.", remedy='write id, "Other Column".')
    names = [
        quoted.replace('""', '"') if quoted else plain for quoted, plain in _COLUMN.findall(text)
    ]
    for name in names:
        check_identifier(name)
        if names.count(name) > 1:
            raise OptionError(
                f"{text!r} names the column {name!r} twice.", remedy="name each column once."
            )
    return tuple(names)


def _identifier(text: str) -> str:
    check_identifier(text)
    if text.startswith("pg_"):
        raise OptionError(
            f"The schema {text!r} belongs to the system.", remedy="take another name."
        )
    return text


_ELSEWHERE = {
    "driver": "leave it out: no JDBC driver is used.",
    "isolationLevel": "leave it out: each epoch is one transaction, or several prepared ones.",
    "numPartitions": "repartition the data frame instead.",
    "truncate": "truncate the table yourself: this sink appends or upserts.",
    "createTableOptions": "create the table yourself, then write to it.",
    "createTableColumnTypes": "create the table yourself, then write to it.",
    "queryTimeout": "set statement_timeout in the url: options=-cstatement_timeout=...",
    "sessionInitStatement": "set it for the role: ALTER ROLE ... SET ...",
    "table": "use dbtable.",
    "upsertkey": "use write=upsert and key.",
    "path": "use dbtable.",
}
"""Options of Spark's JDBC source and of other connectors."""


@dataclass(frozen=True, slots=True)
class PostgresOptions:
    """Where and how to write. Its ``repr`` shows no secret (I9).

    Args:
        address: the server and database, with credentials.
        dbtable: the table.
        common: what every sink takes.
        write: ``append``, ``upsert``, or ``replace``: see ``replacing``, which no option asks for.
        key: columns that identify a row, for ``upsert``; as written, see ``column_list``.
        orderby: of several rows of one key, the one with the greatest value here is taken; without
            it they are an error.
        batchsize: rows that are encoded and sent at a time, at most.
        createtable: create the table where it is missing.
        stateschema: schema of register, markers and staging.
        locktimeout: seconds to wait for a lock that something else holds.
        connecttimeout: seconds to wait for the server to take a connection.
        deadletter: a table of this database for rows that the table refuses by their data; it is
            created if it is missing. Without it such a row stops the query.
        deadlettermax: the largest share of such rows, over the last 16 epochs, from 100 on.
        deadlettercolumns: columns of the input that dead letters do not show.
    """

    address: Address
    dbtable: Annotated[TableName, TableName.parse]
    common: CommonOptions = field(default_factory=CommonOptions)
    write: Annotated[str, one_of("append", "upsert")] = "append"
    key: Annotated[tuple[str, ...], column_list] = ()
    orderby: Annotated[tuple[str, ...], column_list] = ()
    batchsize: Annotated[int, whole_number(1, 10_000_000)] = 65_536
    createtable: Annotated[bool, boolean] = False
    stateschema: Annotated[str, _identifier] = "abs"
    locktimeout: Annotated[float, seconds(0.1, 600.0)] = 10.0
    connecttimeout: Annotated[float, seconds(1.0, 600.0)] = 10.0
    deadletter: Annotated[TableName | None, TableName.parse] = None
    deadlettermax: Annotated[float, share] = 0.01
    deadlettercolumns: Annotated[tuple[str, ...], column_list] = ()

    @property
    def patience(self) -> Patience:
        """With the server."""
        return Patience(self.common.patience, system=f"PostgreSQL at {self.address.label}")

    @property
    def server(self) -> Server:
        """The server's address and timeouts."""
        return Server(self.address, self.locktimeout, self.connecttimeout, self.common.patience)

    @property
    def state(self) -> MetadataSchema:
        """The schema of register, markers and staging."""
        return MetadataSchema(self.server, self.stateschema)

    @property
    def protocol(self) -> str:
        return self.common.protocol

    @property
    def replaces(self) -> bool:
        """Whether each epoch replaces all rows of the table."""
        return self.write == "replace"

    def replacing(self) -> Self | None:
        """These options for epochs that replace the table; None if no single transaction can do it.

        It can under ``wal``, with the register in this database.
        """
        if self.protocol != "wal":
            return None
        return replace(self, write="replace")

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """Read options as Spark passes them: text to text, names in any case.

        Raises:
            OptionError: lists all unknown, missing, malformed and contradictory options.
        """
        problems = Problems(NAME)
        values = read_options(given, (*COMMON, *OPTIONS), problems, elsewhere=_ELSEWHERE)
        present = {name.lower() for name in given}
        for needed, what in (("url", "the server"), ("dbtable", "the table")):
            if needed not in present:
                problems.add(f"The option {needed} is missing.", f"it names {what}.")
        address = None
        if values["url"] is not None:
            address = problems.attempt(
                lambda: Address.parse(values["url"], values["user"], values["password"])
            )
        common = CommonOptions.of(values)
        _check_together(common, values, problems)
        problems.raise_any()
        assert address is not None
        return cls(address, common=common, **fields_from(cls, values))


OPTIONS = (
    Option("url", text, secret=True),
    Option("user", text),
    Option("password", str, secret=True),
    *options_of(PostgresOptions),
)


def _check_together(common: CommonOptions, values: Mapping[str, Any], problems: Problems) -> None:
    """Refuse combinations that cannot keep the guarantee."""
    write = values["write"]
    if common.protocol == "2pc" and write == "upsert":
        problems.add(
            "protocol=2pc cannot upsert: two tasks that touch the same key would block each other "
            "for ever, each prepared and neither committed.",
            "set protocol=wal (the epoch appears at once) or protocol=idempotent (least work).",
        )
    if common.protocol == "idempotent" and write == "append":
        problems.add(
            "protocol=idempotent cannot append: an epoch that is written again would double its "
            "rows.",
            "set write=upsert and key, or protocol=2pc or wal.",
        )
    if write == "upsert" and not values["key"]:
        problems.add("write=upsert needs the option key.", "name the columns that identify a row.")
    for name in ("key", "orderby"):
        if write == "append" and values[name]:
            problems.add(
                f"The option {name} has no meaning for write=append.", "did you mean write=upsert?"
            )
    if values["deadletter"] is None:
        for name, default in (("deadlettermax", 0.01), ("deadlettercolumns", ())):
            if values[name] != default:
                problems.add(f"The option {name} has no meaning without deadletter.", "set it too.")
    elif values["deadletter"] == values["dbtable"]:
        problems.add("The options deadletter and dbtable name one table.", "name another one.")
    if common.wal is not None:
        problems.add(
            "The option wal has no meaning here: this sink stages in tables of its own.",
            "leave it out; the option stateschema says where they are.",
        )
