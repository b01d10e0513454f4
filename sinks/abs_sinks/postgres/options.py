"""The options of ``abs-postgres``, read once into one typed value."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Self

from abs_clients.options import (
    Option,
    Problems,
    boolean,
    described,
    duration,
    fields_from,
    one_of,
    options_of,
    read_options,
    seconds,
    text,
    whole_number,
)
from abs_clients.postgres.address import Address, Server
from abs_clients.postgres.metadata import MetadataSchema
from abs_clients.postgres.name import TableName, check_identifier
from abs_clients.postgres.password import SOURCES, PasswordSource
from abs_core.errors import OptionError
from abs_core.patience import Patience
from abs_sinks.options import (
    COMMON,
    DELETES,
    CommonOptions,
    DeadLetterOptions,
    Deletes,
    ToSink,
    sink_or,
)
from abs_sinks.postgres.option_rules import OF_CHANGES, check_together

NAME = "abs-postgres"

COMMITTED_AT = "source_ts_ms"
"""Default of ``committedat``: what ``abs_spark.debezium`` adds for a table."""

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


def quoted_list(names: Sequence[str]) -> str:
    """Inverse of ``column_list``."""
    return ",".join(name if _PLAIN.fullmatch(name) else _quoted(name) for name in names)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_PLAIN = re.compile(r"\w+")


def _identifier(text: str) -> str:
    check_identifier(text)
    if text.startswith("pg_"):
        raise OptionError(
            f"The schema {text!r} belongs to the system.", remedy="take another name."
        )
    return text


def _deletes(value: str) -> Deletes:
    return Deletes.parse(value, column_list)


_one_write = one_of("append", "upsert", "changes")


def _write(text: str) -> str:
    if text.strip().lower() in _NOT_WRITTEN:
        raise OptionError(f"write={text} is not supported.", remedy=_NOT_WRITTEN[text.lower()])
    return _one_write(text)


_NOT_WRITTEN = {
    "replace": "use abs_spark.epoch with outputMode complete and protocol=wal: each epoch then "
    "replaces what the table holds.",
    "scd2": "only the newest row of each key is kept (write=changes); append the changes to a table of "
    "their own to keep their history.",
}

_ELSEWHERE = {
    "wal": "leave it out: this sink stages in tables of its own; the option stateschema says where.",
    "applyastruncates": "leave it out: truncates are not applied. Truncate the table yourself.",
    "storedasscdtype": _NOT_WRITTEN["scd2"],
    "stored_as_scd_type": _NOT_WRITTEN["scd2"],
    "deletes": "leave it out: a delete removes its row, soft deletes are not written. To keep such "
    "rows, set applyasdeletes to a value that no change has, and write the operation to a column.",
    "keys": "use key.",
    "sequence_by": "use sequenceby.",
    "apply_as_deletes": "use applyasdeletes.",
    "apply_as_truncates": "leave it out: truncates are not applied.",
    "except_column_list": "use exceptcolumns.",
    "ignore_null_updates": "use unchanged: it names a column that lists what a change leaves as it is.",
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


@described
@dataclass(frozen=True, slots=True)
class PostgresOptions(DeadLetterOptions[TableName]):
    """Where and how to write. Its ``repr`` shows no secret (I9).

    ``write`` is ``replace``, too, which ``replacing`` sets and no option selects.

    Args:
        address: the server and database, with credentials.
        common: what every sink takes.
    """

    address: Address
    dbtable: Annotated[TableName, TableName.parse, "`table` or `schema.table`, quoted where needed"]
    common: CommonOptions = field(default_factory=CommonOptions)
    write: Annotated[
        str,
        _write,
        "`append`, `upsert` by `key`, or `changes`: see [changes](../how-to/changes.md)",
    ] = "append"
    key: Annotated[
        tuple[str, ...],
        column_list,
        "columns of the key, separated by commas; `upsert` needs it; default for "
        "`changes`: the primary key",
    ] = ()
    orderby: Annotated[
        tuple[str, ...],
        column_list,
        "upsert: if an epoch has several rows of one key, the row with the greatest value "
        "in this column wins. Across epochs the later epoch wins, even if its value is "
        "smaller; where that is wrong, take `write=changes` with `sequenceby`",
    ] = ()
    onconflict: Annotated[
        str,
        one_of("fail", "nothing", "update"),
        "append with `protocol=wal`: a row that a unique index has already makes the "
        "epoch `fail`, or is left out (`nothing`); `update` is the same as `write=upsert`",
    ] = "fail"
    sequenceby: Annotated[
        tuple[str, ...],
        column_list,
        "changes: the columns of a change's position. Of two changes of a key the one "
        "with the greater position wins",
    ] = ()
    applyasdeletes: Annotated[
        Deletes,
        _deletes,
        "changes: which ones delete: a boolean column, or `column=value,value`; default: `op=d`",
    ] = DELETES
    exceptcolumns: Annotated[
        tuple[str, ...],
        column_list,
        "changes: columns of the input that are not written. The columns of operation and "
        "position are written where the table has them",
    ] = ()
    positions: Annotated[
        str,
        one_of("table", "side"),
        "changes: where the position of a row is kept: in the `table`'s own columns, or "
        "in a `side` table of the state schema",
    ] = "table"
    tombstones: Annotated[
        float,
        duration(1.0, 366 * 86_400.0),
        "changes: how long the position of a deleted row is kept: seconds, or `2d`, by "
        "the server's clock",
    ] = 2 * 86_400.0
    unchanged: Annotated[
        str | None,
        text,
        "changes: the column, an array of strings, that lists the columns which a change "
        "leaves as they are",
    ] = None
    committedat: Annotated[
        str,
        str.strip,
        "changes: the column with the milliseconds since 1970 at which the source "
        "committed a change. By it [a source that goes "
        "back](../how-to/changes.md#a-source-that-goes-back) is noticed. Default: "
        "`source_ts_ms`, if the input has it and the table does not; empty: none",
    ] = COMMITTED_AT
    batchsize: Annotated[int, whole_number(1, 10_000_000), "rows that are sent at a time"] = 65_536
    createtable: Annotated[bool, boolean, "create a missing table from the input's schema"] = False
    schemachange: Annotated[
        str,
        one_of("fail", "ignore", "add"),
        "columns of the input that the table lacks: `fail` (default), `ignore` them, or "
        "`add` them to the table ([new columns](postgres-types.md#new-columns))",
    ] = "fail"
    stateschema: Annotated[
        str, _identifier, "the schema of registers, markers and staging tables"
    ] = "abs"
    locktimeout: Annotated[float, seconds(0.1, 600.0), "how long to wait for a lock"] = 10.0
    connecttimeout: Annotated[float, seconds(1.0, 600.0), "how long to wait for a connection"] = (
        10.0
    )
    deadletter: Annotated[
        TableName | ToSink | None,
        sink_or(TableName.parse),
        "a table of the same database for rows that the table refuses by their data, "
        "under the same decision; created if it is missing; in `abs_spark.epoch` also "
        "another sink (`sink:NAME`), for what no column can hold. Without it such a row "
        "stops the query; see [dead letters](dead-letters.md)",
    ] = field(default=None, kw_only=True)
    deadlettercolumns: Annotated[
        tuple[str, ...],
        column_list,
        "columns of the input that dead letters do not show, for instance personal data; "
        "such letters cannot be replayed if the target needs the columns",
    ] = field(default=(), kw_only=True)

    @property
    def patience(self) -> Patience:
        """The patience with the server."""
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
    def changes(self) -> tuple[object, ...]:
        """All that decides how changes are applied; empty for another ``write``."""
        if self.write != "changes":
            return ()
        return (self.stateschema, *(getattr(self, name) for name in OF_CHANGES))

    @property
    def written(self) -> dict[str, str]:
        """The options by which changes are applied again, as text; empty for another ``write``."""
        if not self.changes:
            return {}
        lists = {
            "key": self.key,
            "sequenceby": self.sequenceby,
            "exceptcolumns": self.exceptcolumns,
        }
        texts = {name: quoted_list(names) for name, names in lists.items() if names}
        deletes = replace(self.applyasdeletes, column=quoted_list([self.applyasdeletes.column]))
        if self.unchanged is not None:
            texts["unchanged"] = self.unchanged
        if self.committedat != COMMITTED_AT:
            texts["committedat"] = self.committedat
        return {
            "write": "changes",
            "applyasdeletes": str(deletes),
            "positions": self.positions,
            "tombstones": f"{int(self.tombstones)}s",
            "schemachange": self.schemachange,
            "stateschema": self.stateschema,
            **texts,
        }

    def replacing(self) -> Self | None:
        """These options for epochs that replace the table; None if no single transaction can do it.

        It can under ``wal``, with the register in this database.
        """
        if self.protocol != "wal" or self.changes:
            return None
        return replace(self, write="replace")

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Read options as Spark passes them: text to text, names in any case.

        Raises:
            OptionError: lists all unknown, missing, malformed and contradictory options.
        """
        problems = Problems(NAME)
        values = read_options(options, (*COMMON, *OPTIONS), problems, elsewhere=_ELSEWHERE)
        present = {name.lower() for name in options}
        for needed, meaning in (("url", "the server"), ("dbtable", "the table")):
            if needed not in present:
                problems.add(f"The option {needed} is missing.", f"it names {meaning}.")
        address = None
        if values["url"] is not None:
            address = problems.attempt(lambda: _address(values))
        common = CommonOptions.of(values)
        if values["onconflict"] == "update" and values["write"] == "append":
            values |= {"write": "upsert", "onconflict": "fail"}
        check_together(common, values, {o.name: o.default for o in OPTIONS}, problems)
        problems.raise_any()
        assert address is not None
        return cls(address, common=common, **fields_from(cls, values))


_PASSWORD_FROM = {
    "passwordcommand": "a program whose first line is the password; run for each new connection",
    "passwordfile": "a file that holds the password; read for each new connection",
    "passwordfunction": "`module:function`, or an entry point of the group `abs_sinks.tokens`; gets "
    "libpq's parameters as a dict and returns the password or token, for each new connection",
}

OPTIONS = (
    Option("url", text, secret=True, doc="libpq URI or keyword string, or `jdbc:postgresql:`"),
    Option("user", text, doc="takes precedence over the URL"),
    Option("password", str, secret=True, doc="takes precedence over the URL"),
    *(Option(name, text, secret=True, doc=_PASSWORD_FROM[name]) for name in SOURCES),
    *options_of(PostgresOptions),
)


def _address(values: Mapping[str, Any]) -> Address:
    sources = [PasswordSource(name, values[name]) for name in SOURCES if values[name] is not None]
    if len(sources) > 1:
        raise OptionError(
            f"The options {' and '.join(one.option for one in sources)} both give a password.",
            remedy="give one of them.",
        )
    source = sources[0] if sources else None
    if source is not None:
        source.check()
    return Address.parse(values["url"], values["user"], values["password"], source)


_PLACE = ("service", "host", "hostaddr", "port", "dbname", "user", "options")
"""The libpq parameters that identify server, database, role and session options."""


_DEFAULTS = {"port": "5432"}


def transactions_of(options: PostgresOptions) -> Hashable | None:
    """A key that is equal for sinks that can share transactions; None: this one shares none.

    It compares server, database, role, protocol and state schema as the options write them: two names
    of one server count as two servers. The first sink's timeouts and password are used.
    """
    # Tasks of `idempotent` commit their rows themselves: there is no transaction to share.
    if options.protocol == "idempotent":
        return None
    parameters = {**_DEFAULTS, **dict(options.address.parameters)}
    place = tuple(sorted((name, parameters[name]) for name in _PLACE if name in parameters))
    return options.protocol, place, options.stateschema
