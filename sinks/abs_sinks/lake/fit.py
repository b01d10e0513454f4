"""Whether an input fits a table, and what is written of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa

from abs_clients.arrow import plain_type, type_name
from abs_core.errors import OptionError, SchemaError
from abs_sinks.jsontext import refuse_tagged
from abs_sinks.lake.table import Snapshot
from abs_sinks.lake.values import with_uuids_as_text
from abs_sinks.refusals import MisfitError

CHANGES = ("fail", "ignore", "add")
"""What is done with a column of the input that the table lacks: values of ``schemachange``."""


@dataclass(frozen=True, slots=True)
class Fit:
    """How an input fits a table.

    Args:
        table: its id.
        schema: of the data files, partition columns among them. A column that the input does not have
            is NULL.
        required: columns that must not be NULL.
        added: columns of ``schema`` that the table lacks; the commit adds them.
        location: of the table's data files, see ``Snapshot``.
    """

    table: str
    partitions: tuple[str, ...]
    schema: pa.Schema
    required: tuple[str, ...] = ()
    added: tuple[pa.Field, ...] = ()
    location: str = ""


def plain_schema(
    schema: pa.Schema, widened: Mapping[pa.DataType, pa.DataType] = MappingProxyType({})
) -> pa.Schema:
    """The input's columns as they are written, each nullable.

    Args:
        widened: types that the table does not have, each with the one that holds its values.
    """
    kinds = ((field.name, plain_type(field.type)) for field in schema)
    return pa.schema([pa.field(name, widened.get(kind, kind)) for name, kind in kinds])


def fit(
    snapshot: Snapshot,
    schema: pa.Schema,
    partitionby: Sequence[str],
    change: str = "fail",
    *,
    in_files: bool = False,
) -> Fit:
    """Check the input, as ``plain_schema`` made it, against the table.

    Args:
        change: one of ``CHANGES``.
        in_files: it is the schema of files that are written: parts of structs that the table got since
            then are NULL in their rows, for each reader.

    Raises:
        SchemaError: columns or types differ, or the table asks what is not kept here.
        OptionError: ``partitionby`` is not the table's.
    """
    for problem, remedy in snapshot.problems():
        raise SchemaError(problem, remedy=remedy)
    if len(set(schema.names)) < len(schema.names):
        raise SchemaError("Two columns have one name.", remedy="rename one of them in Spark.")
    partitions, wanted = snapshot.partitions, {field.name: field for field in snapshot.schema}
    if partitionby and tuple(partitionby) != partitions:
        raise OptionError(
            f"The table is partitioned by {', '.join(partitions) or 'nothing'}, not by "
            f"{', '.join(partitionby)}.",
            remedy="leave partitionby out: it is for a table that is created.",
        )
    added = tuple(field for field in schema if field.name not in wanted)
    if change == "ignore":
        schema = pa.schema([field for field in schema if field.name in wanted])
    required = tuple(name for name, field in wanted.items() if not field.nullable)
    misfits = [
        *unwritable(schema),
        *_misfits(schema, wanted, (*required, *snapshot.sources), in_files=in_files),
        *(f"{field.name} is not in the table" for field in added if change == "fail"),
        *_by_case_alone(added, schema.names, wanted, change),
        *(
            f"{n} is a moment with a zone, which engines read differently as a partition"
            for n in partitions
            if n in schema.names and getattr(schema.field(n).type, "tz", None)
        ),
    ]
    if misfits:
        raise unfit(misfits)
    if not schema.names:
        raise SchemaError(
            "The input and the table have no column in common: files would have none, and no rows.",
            remedy="rename columns in Spark, or write to another table.",
        )
    adds = added if change == "add" else ()
    return Fit(snapshot.id, partitions, snapshot.written(schema), required, adds, snapshot.location)


def unfit(misfits: Sequence[str]) -> SchemaError:
    """The error for an input, or for files of an epoch, that a table does not take."""
    return SchemaError(
        f"The input does not fit the table: {'; '.join(misfits)}.",
        remedy="cast, rename or drop the columns in Spark, or change the table first (columns that "
        "it lacks: schemachange=add or ignore).",
    )


def unwritable(schema: pa.Schema) -> Iterator[str]:
    """Columns of types that neither format keeps."""
    for field in schema:
        yield from (f"{field.name} {why}" for why in _unwritable(field.type))


def _unwritable(kind: pa.DataType) -> Iterator[str]:
    if pa.types.is_null(kind):
        yield "has no type, only NULLs"
    if pa.types.is_struct(kind) and not kind.num_fields:
        yield "has a struct without fields, which Parquet does not have"
    try:
        refuse_tagged(kind)
    except MisfitError as error:
        yield f"cannot be written: {error.reason}"
    parts = (kind.field(place).type for place in range(kind.num_fields))
    for part in parts if pa.types.is_nested(kind) else ():
        yield from _unwritable(part)


def _misfits(
    schema: pa.Schema,
    wanted: Mapping[str, pa.Field],
    demanded: Sequence[str],
    *,
    in_files: bool,
) -> Iterator[str]:
    for field in schema:
        other = wanted.get(field.name)
        if other is None or _is_read_as(field.type, plain_type(other.type), in_files=in_files):
            continue
        if field.type != plain_type(with_uuids_as_text(other.type)):
            yield (
                f"{field.name} is {type_name(field.type)}, "
                f"in the table {type_name(plain_type(other.type))}"
            )
    for name in dict.fromkeys(demanded):
        if name not in schema.names:
            yield f"{name} is missing, which the table demands"
    yield from demanding(wanted.values())


def demanding(fields: Iterable[pa.Field]) -> Iterator[str]:
    """Columns of a table with parts that must not be NULL, which are not looked at."""
    for field in fields:
        if _demands(field.type):
            yield f"{field.name} has parts that must not be NULL in the table"


def _is_read_as(written: pa.DataType, now: pa.DataType, *, in_files: bool) -> bool:
    """Whether a column of this plain type is the table's; see ``fit``."""
    if written == now or not in_files:
        return bool(written == now)
    types = pa.types
    if types.is_struct(written) and types.is_struct(now):
        parts = {field.name: field.type for field in now}
        return all(
            field.name in parts and _is_read_as(field.type, parts[field.name], in_files=True)
            for field in written
        )
    if types.is_list(written) and types.is_list(now):
        return _is_read_as(written.value_type, now.value_type, in_files=True)
    if types.is_map(written) and types.is_map(now):
        return written.key_type == now.key_type and _is_read_as(
            written.item_type, now.item_type, in_files=True
        )
    return False


def _by_case_alone(
    lacking: Sequence[pa.Field], names: Sequence[str], wanted: Mapping[str, pa.Field], change: str
) -> Iterator[str]:
    """Spark finds columns whatever their case: one that differs by it alone is the table's own.

    Two such columns cannot be read, and one that is ignored would be NULL in the table.

    Args:
        lacking: columns of the input that the table lacks under their very name.
        names: of all columns that are written.
    """
    cases = {name.lower(): name for name in wanted}
    for field in lacking if change != "fail" else ():
        name = cases.get(field.name.lower())
        if name is not None and (change == "add" or name not in names):
            yield f"{field.name} is {name} in the table"
    if change == "add":
        yield from alike(lacking)


def alike(fields: Iterable[pa.Field], path: str = "") -> Iterator[str]:
    """Columns, or parts of one, whose names differ by upper and lower case alone.

    Spark fails at such a table, and DuckDB reads one part for the other.
    """
    names: dict[str, str] = {}
    for field in fields:
        other = names.setdefault(field.name.lower(), field.name)
        if other != field.name:
            yield f"{path}{field.name} differs from {path}{other} by its case alone"
        kind = field.type
        parts = [kind.field(place) for place in range(kind.num_fields)]
        if pa.types.is_nested(kind):
            yield from alike(parts, f"{path}{field.name}.")


def _demands(kind: pa.DataType) -> bool:
    """Whether a nested type has parts that must not be NULL (keys of maps never are)."""
    if pa.types.is_map(kind):
        return not kind.item_field.nullable or _demands(kind.item_type)
    parts = [kind.field(n) for n in range(kind.num_fields)] if pa.types.is_nested(kind) else []
    return any(not part.nullable or _demands(part.type) for part in parts)
