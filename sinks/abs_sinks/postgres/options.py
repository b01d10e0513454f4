"""The options of ``abs-postgres``, read once into one typed value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Self

from abs_clients.options import (
    Option,
    Problems,
    boolean,
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
    check_may_bury,
    sink_or,
)

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


def _deletes(given: str) -> Deletes:
    return Deletes.parse(given, column_list)


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


@dataclass(frozen=True, slots=True)
class PostgresOptions(DeadLetterOptions[TableName]):
    """Where and how to write. Its ``repr`` shows no secret (I9).

    Args:
        address: the server and database, with credentials.
        dbtable: the table.
        common: what every sink takes.
        write: ``append``, ``upsert``, ``changes``, or ``replace``, which ``replacing`` sets and no
            option selects.
        key: columns that identify a row, for ``upsert`` and ``changes``; as written, see
            ``column_list``. Of ``changes`` the default is the primary key.
        orderby: of several rows of one key, the one with the greatest value here is taken; without
            it they are an error.
        onconflict: what an appended row does that a unique index holds already: ``fail``, or
            ``nothing``: it is left out. (``update`` is ``write=upsert``.)
        sequenceby: the position of a change: of two changes of a key the one with the greater one wins.
        applyasdeletes: which changes delete.
        exceptcolumns: columns of the input that are not written.
        positions: where the position of a row is kept: in the ``table``, or in a ``side`` table.
        tombstones: seconds for which the position of a deleted row is kept.
        unchanged: the column that lists the columns which a change leaves as they are.
        committedat: the column with the milliseconds since 1970 at which the source committed a
            change; of the default only if the input has it, and the table does not. Empty: none.
        batchsize: rows that are encoded and sent at a time, at most.
        createtable: create the table where it is missing.
        schemachange: what becomes of a column of the input that the table lacks: ``fail`` stops the
            query before it writes, ``ignore`` does not write it, ``add`` adds it to the table.
        stateschema: schema of register, markers and staging.
        locktimeout: seconds to wait for a lock that something else holds.
        connecttimeout: seconds to wait for the server to take a connection.
        deadletter: a table of this database for rows that the table refuses by their data; it is
            created if it is missing. Or a sink of the same epoch, for what the client can tell.
            Without it such a row stops the query.
    """

    address: Address
    dbtable: Annotated[TableName, TableName.parse]
    common: CommonOptions = field(default_factory=CommonOptions)
    write: Annotated[str, _write] = "append"
    key: Annotated[tuple[str, ...], column_list] = ()
    orderby: Annotated[tuple[str, ...], column_list] = ()
    onconflict: Annotated[str, one_of("fail", "nothing", "update")] = "fail"
    sequenceby: Annotated[tuple[str, ...], column_list] = ()
    applyasdeletes: Annotated[Deletes, _deletes] = DELETES
    exceptcolumns: Annotated[tuple[str, ...], column_list] = ()
    positions: Annotated[str, one_of("table", "side")] = "table"
    tombstones: Annotated[float, duration(1.0, 366 * 86_400.0)] = 2 * 86_400.0
    unchanged: Annotated[str | None, text] = None
    committedat: Annotated[str, str.strip] = COMMITTED_AT
    batchsize: Annotated[int, whole_number(1, 10_000_000)] = 65_536
    createtable: Annotated[bool, boolean] = False
    schemachange: Annotated[str, one_of("fail", "ignore", "add")] = "fail"
    stateschema: Annotated[str, _identifier] = "abs"
    locktimeout: Annotated[float, seconds(0.1, 600.0)] = 10.0
    connecttimeout: Annotated[float, seconds(1.0, 600.0)] = 10.0
    deadletter: Annotated[TableName | ToSink | None, sink_or(TableName.parse)] = field(
        default=None, kw_only=True
    )
    deadlettercolumns: Annotated[tuple[str, ...], column_list] = field(default=(), kw_only=True)

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
        return (self.stateschema, *(getattr(self, name) for name in _OF_CHANGES))

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
        told = {name: quoted_list(names) for name, names in lists.items() if names}
        deletes = replace(self.applyasdeletes, column=quoted_list([self.applyasdeletes.column]))
        if self.unchanged is not None:
            told["unchanged"] = self.unchanged
        if self.committedat != COMMITTED_AT:
            told["committedat"] = self.committedat
        return {
            "write": "changes",
            "applyasdeletes": str(deletes),
            "positions": self.positions,
            "tombstones": f"{int(self.tombstones)}s",
            "schemachange": self.schemachange,
            "stateschema": self.stateschema,
            **told,
        }

    def replacing(self) -> Self | None:
        """These options for epochs that replace the table; None if no single transaction can do it.

        It can under ``wal``, with the register in this database.
        """
        if self.protocol != "wal" or self.changes:
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
            address = problems.attempt(lambda: _address(values))
        common = CommonOptions.of(values)
        if values["onconflict"] == "update" and values["write"] == "append":
            values |= {"write": "upsert", "onconflict": "fail"}
        _check_together(common, values, problems)
        problems.raise_any()
        assert address is not None
        return cls(address, common=common, **fields_from(cls, values))


OPTIONS = (
    Option("url", text, secret=True),
    Option("user", text),
    Option("password", str, secret=True),
    *(Option(name, text, secret=True) for name in SOURCES),
    *options_of(PostgresOptions),
)


_OF_CHANGES = (
    "sequenceby",
    "applyasdeletes",
    "exceptcolumns",
    "positions",
    "tombstones",
    "unchanged",
    "committedat",
)


def _address(values: Mapping[str, Any]) -> Address:
    given = [PasswordSource(name, values[name]) for name in SOURCES if values[name] is not None]
    if len(given) > 1:
        raise OptionError(
            f"The options {' and '.join(each.option for each in given)} both give a password.",
            remedy="give one of them.",
        )
    source = given[0] if given else None
    if source is not None:
        source.check()
    return Address.parse(values["url"], values["user"], values["password"], source)


def _check_together(common: CommonOptions, values: Mapping[str, Any], problems: Problems) -> None:
    """Refuse combinations that cannot keep the guarantee."""
    write = values["write"]
    if common.protocol == "2pc" and write in ("upsert", "changes"):
        what = "upsert" if write == "upsert" else "apply changes"
        problems.add(
            f"protocol=2pc cannot {what}: two tasks that touch the same key would block each other "
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
    _check_changes(values, problems)
    if values["onconflict"] != "fail" and (write != "append" or common.protocol != "wal"):
        problems.add(
            f"onconflict={values['onconflict']} needs write=append and protocol=wal: COPY, by which "
            "2pc appends, knows no conflicts, and other writes replace rows.",
            "set protocol=wal, or leave onconflict out.",
        )
    for name in ("key", "orderby"):
        if write == "append" and values[name] and values["onconflict"] != "nothing":
            problems.add(
                f"The option {name} has no meaning for write=append.", "did you mean write=upsert?"
            )
    check_may_bury(common, values, problems)
    if values["deadletter"] is not None and values["deadletter"] == values["dbtable"]:
        problems.add("The options deadletter and dbtable name one table.", "name another one.")


def _check_changes(values: Mapping[str, Any], problems: Problems) -> None:
    """Refuse options of changes where there are none, and changes without an order."""
    if values["write"] != "changes":
        defaults = {option.name: option.default for option in OPTIONS}
        for name in _OF_CHANGES:
            if values[name] != defaults[name]:
                problems.add(
                    f"The option {name} has no meaning for write={values['write']}.",
                    "did you mean write=changes?",
                )
        return
    if not values["sequenceby"]:
        problems.add(
            "write=changes needs the option sequenceby.",
            "name the columns that hold a change's position in the order of all changes.",
        )
    if values["orderby"]:
        problems.add("The option orderby has no meaning for write=changes.", "use sequenceby.")
    if both := set(values["key"]) & set(values["sequenceby"]):
        problems.add(
            f"The columns {', '.join(sorted(both))} are in key and in sequenceby.",
            "the key says which row changes, sequenceby in which order.",
        )
