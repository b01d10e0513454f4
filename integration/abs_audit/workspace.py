"""A temporary duckdb with bounded memory that spills to disk."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
from duckdb import DuckDBPyConnection
from duckdb.func import PythonUDFType

from abs_audit.canonical import MACROS, as_text, canonical, json_function
from abs_audit.contracts import PLACE, Relation
from abs_audit.families import SEMI_STRUCTURED
from abs_audit.nested import canonicaliser, plain_decimal
from abs_audit.plan import Plan
from abs_audit.progress import meter_here
from abs_core.errors import AbsError, ConfigError, RowError, UnavailableError

MAX_PLACES = 5
"""Places that are named of one record on one side."""

MIB_PER_THREAD = 128
"""What one thread of duckdb needs to work well (duckdb's guide on its environment: 125 MB)."""


@contextlib.contextmanager
def workspace(memory_mib: int, temp_directory: Path | None) -> Iterator[DuckDBPyConnection]:
    """An empty duckdb, deleted with all that it spilled at the end; maps foreign errors.

    Args:
        memory_mib: memory limit of duckdb; the process needs some 150 MiB besides.
        temp_directory: for spilling; default: the system's. It needs room for both sides.

    Raises:
        ConfigError: memory or disk is too small.
        RowError: a value cannot be read as the type in which it is compared.
    """
    with _mapped(memory_mib), _folder(temp_directory) as folder:
        connection = duckdb.connect(
            ":memory:",
            config={
                "memory_limit": f"{memory_mib}MiB",
                "temp_directory": folder,
                "threads": max(1, min(os.cpu_count() or 1, memory_mib // MIB_PER_THREAD)),
                "preserve_insertion_order": False,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            },
        )
        with connection:
            connection.execute("set timezone = 'UTC'")
            # How far it is can be asked for. Printed, it would go into the midst of a JSON document.
            connection.execute("set enable_progress_bar = true")
            connection.execute("set enable_progress_bar_print = false")
            connection.create_function(
                "plain_decimal", plain_decimal, ["VARCHAR"], "VARCHAR", type=PythonUDFType.ARROW
            )
            for macro in MACROS:
                connection.execute(macro)
            yield connection


@contextlib.contextmanager
def _folder(parent: Path | None) -> Iterator[str]:
    try:
        folder = tempfile.TemporaryDirectory(prefix="abs-audit-", dir=parent)
    except OSError as error:
        raise ConfigError(
            f"There is no room for temporary files in {parent or tempfile.gettempdir()}: "
            f"{error.strerror}.",
            remedy="use a temporary folder that can be written.",
        ) from error
    with folder as path:
        yield path


def prepare(connection: DuckDBPyConnection, plan: Plan) -> None:
    """Create the functions for the plan's JSON columns."""
    for index, pair in enumerate(plan.pairs):
        if pair.common.family in SEMI_STRUCTURED:
            connection.create_function(
                json_function(index),
                canonicaliser(pair.common),
                ["VARCHAR"],
                "VARCHAR",
                type=PythonUDFType.ARROW,
            )


def load(
    connection: DuckDBPyConnection, table: str, relation: Relation, plan: Plan, *, actual: bool
) -> None:
    """Read the relation once into ``table``: canonical values c0, c1, ... and a digest.

    The digest is 128 bits of SHA-256 over the canonical texts of all compared columns. Raises
    RowError, with the column, for a value that cannot be read as the compared type.
    """
    columns = [f"c{index}" for index in range(len(plan.pairs))]
    values = ", ".join(
        f"{value} as {column}"
        for value, column in zip(_values(plan, actual=actual), columns, strict=True)
    )
    # JSON of a list of texts tells NULL, '' and any separator apart, so no two records share it.
    texts = ", ".join(
        as_text(column, pair.common) for column, pair in zip(columns, plan.pairs, strict=True)
    )
    try:
        with _incoming(connection, relation, plan.actual_names if actual else plan.names):
            connection.execute(
                f"create or replace table {table} as select *, "
                f"cast(substr(sha256(cast(to_json([{texts}]) as varchar)), 1, 32) as uuid) as digest "
                f"from (select {values} from incoming as incoming({', '.join(columns)}))"
            )
    except _UNREADABLE_VALUE as error:
        raise _unreadable(connection, relation, plan, error, actual=actual) from error


def locate(
    connection: DuckDBPyConnection, expected: Relation, actual: Relation, plan: Plan
) -> None:
    """Read both sides once more for where they hold the records in ``sampled``, if there are any.

    A side that cannot be read now has its error in the place of places: the comparison is done, and
    its report says so.
    """
    if not connection.execute("select 1 from sampled limit 1").fetchall():
        return
    meter_here().begin("looking where the differences are", connection)
    for relation, is_actual, elsewhere in (
        (expected, False, "unexpected"),
        (actual, True, "missing"),
    ):
        try:
            _place(connection, relation, plan, actual=is_actual)
        except AbsError as error:
            connection.execute(
                "insert into places select distinct verdict, ?, ? from sampled where kind <> ?",
                [is_actual, f"a place that could not be read: {error}", elsewhere],
            )


def _place(connection: DuckDBPyConnection, relation: Relation, plan: Plan, *, actual: bool) -> None:
    """Read the relation once more, and add to ``places`` where it holds the records in ``sampled``."""
    names = (plan.actual_names if actual else plan.names)[: len(plan.identity)]
    columns = [f"c{index}" for index in range(len(names))]
    same = " and ".join(f"p.{column} is not distinct from s.{column}" for column in columns)
    values = zip(_values(plan, actual=actual), columns, strict=False)
    with _incoming(connection, relation, [*names, PLACE]):
        connection.execute(
            f"insert into places select s.verdict, {actual}, p.place from "
            f"(select {', '.join(f'{value} as {column}' for value, column in values)}, place "
            f"from incoming as incoming({', '.join(columns)}, place) where place is not null) p "
            f"join sampled s on {same} "
            f"qualify row_number() over (partition by s.verdict order by p.place) <= {MAX_PLACES}"
        )


def _values(plan: Plan, *, actual: bool) -> list[str]:
    return [
        canonical(f"c{index}", pair.actual if actual else pair.expected, pair.common, index)
        for index, pair in enumerate(plan.pairs)
    ]


@contextlib.contextmanager
def _incoming(
    connection: DuckDBPyConnection, relation: Relation, names: Sequence[str]
) -> Iterator[None]:
    """The relation as the view ``incoming``, to be scanned once."""
    with relation.rows(connection, names) as rows:
        rows.create_view("incoming", replace=True)
        try:
            yield
        finally:
            connection.execute("drop view if exists incoming")


def _unreadable(
    connection: DuckDBPyConnection,
    relation: Relation,
    plan: Plan,
    error: duckdb.Error,
    *,
    actual: bool,
) -> RowError:
    """The error for the column that cannot be read, found by reading column by column."""
    for index, value in enumerate(_values(plan, actual=actual)):
        name = (plan.actual_names if actual else plan.names)[index]
        try:
            with _incoming(connection, relation, [name]):
                connection.execute(f"select count({value}) from incoming as incoming(c{index})")
        except _UNREADABLE_VALUE as found:
            return RowError(
                f"Column {name!r} of {relation.name} has a value that cannot be read as "
                f"{plan.pairs[index].common}: {_first_line(found)}",
                remedy="correct the records; if the text means NULL in a CSV file, name it.",
            )
    return RowError(
        f"{relation.name} has a record that cannot be read: {_first_line(error)}",
        remedy="correct the records.",
    )


_UNREADABLE_VALUE = (
    duckdb.ConversionException,
    duckdb.InvalidInputException,
    duckdb.OutOfRangeException,
)


@contextlib.contextmanager
def _mapped(memory_mib: int) -> Iterator[None]:
    try:
        yield
    except AbsError:
        raise
    except duckdb.OutOfMemoryException as error:
        raise ConfigError(
            f"The audit does not fit into {memory_mib} MiB and its temporary folder: "
            f"{_first_line(error)}",
            remedy="give it more memory, or a temporary folder with more room.",
        ) from error
    except duckdb.Error as error:
        raise UnavailableError(
            f"The audit's own database failed: {_first_line(error)}",
            remedy="check that the files can be read and the disk has space, then run the audit again.",
        ) from error


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0]
