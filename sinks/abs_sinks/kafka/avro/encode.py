"""Encodes Arrow columns as Avro, column by column.

Each type gives **pieces**: columns of bytes which, joined row by row, are the encoding. A piece is
null, which adds nothing, where its value is. A value that the schema cannot hold is a
``BadValuesError``, a type that it cannot is a ``MisfitError``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abs_clients.arrow import alike, cast_plain, list_parts, plain_type, type_name
from abs_clients.avro.defaults import default_array
from abs_clients.avro.schema import Node, member
from abs_clients.buffers import offsets_of
from abs_sinks.kafka.avro.leaves import Piece, leaf_pieces, masked, number
from abs_sinks.kafka.headers import zigzag
from abs_sinks.refusals import BadValuesError, Code, MisfitError, Reason, inside, parents_of, refuse

Live = Any  # pa.BooleanArray | None: pyarrow has no types that mypy sees
"""The rows whose parents are not null; None: all."""

_NOTHING = pa.scalar(b"", pa.binary())


def encode(node: Node, array: pa.Array, header: bytes, path: str) -> pa.BinaryArray:
    """Each value after the header; null where the value is null.

    Args:
        path: of the column, for messages.

    Raises:
        MisfitError: the schema cannot hold the type.
        BadValuesError: the schema cannot hold a value.
    """
    try:
        plain = cast_plain(array, plain_type(array.type), path)
    except pa.ArrowNotImplementedError as error:
        raise MisfitError(str(error), "cast it in Spark") from error
    except pa.ArrowInvalid as error:
        why, remedy = "are more precise than microseconds, or too large", "round or cast them"
        raise BadValuesError(Reason(Code.NOT_CONVERTIBLE, path, why, remedy), None) from error
    pieces = [pa.scalar(header, pa.binary()), *_pieces(node, plain, path, plain.is_valid())]
    return _whole(pieces, plain)


def check_fit(node: Node, arrow: pa.DataType, path: str) -> None:
    """Raise MisfitError if the schema cannot hold the type."""
    encode(node, pa.nulls(0, arrow), b"", path)


def _pieces(node: Node, array: pa.Array, path: str, live: Live = None) -> Sequence[Piece]:
    if node.kind == "union":
        return _union(node, array, path, live)
    if array.null_count and node.kind != "null":
        bad: Any = array.is_null() if live is None else pc.and_(array.is_null(), live)
        why = f"are NULL, which the Avro schema does not allow for {node.shown}"
        remedy = "filter or fill them, or write with a schema in which the field may be null"
        refuse(Reason(Code.NULL, path, why, remedy), bad)
    match node.kind:
        case "record":
            return _record(node, array, path)
        case "array":
            return _array(node, array, path)
        case "map":
            return _map(node, array, path)
    return leaf_pieces(node, array, path)


def _whole(pieces: Sequence[Piece], array: pa.Array) -> pa.BinaryArray:
    """The pieces joined; null where ``array`` is."""
    # Arrow 26 leaves out a row whose pieces are all null, so there is one that is not.
    joined = pc.binary_join_element_wise(_NOTHING, *pieces, _NOTHING, null_handling="skip")
    if isinstance(joined, pa.Scalar):
        joined = pa.repeat(joined, len(array))
    return masked(joined, array) if array.null_count else joined


def _record(node: Node, array: pa.Array, path: str) -> Sequence[Piece]:
    if not pa.types.is_struct(array.type):
        raise _misfit(node, array.type, path, "write a struct: struct(...) AS value")
    names = array.type.names
    columns = array.flatten() if names else []
    live = array.is_valid() if array.null_count else None
    pieces: list[Piece] = []
    used = set()
    for field in node.fields:
        at = f"{path}.{field.name}"
        matches = alike(field.name, names)
        if len(matches) > 1 or names.count(field.name) > 1:
            raise MisfitError(f"{at} could be any of {', '.join(matches)}", "rename the others")
        if matches and matches[0] in used:
            raise MisfitError(
                f"{at} has no column but that of another field", "add one of its name"
            )
        if matches:
            used.add(matches[0])
            pieces += _pieces(field.node, columns[names.index(matches[0])], at, live)
        elif field.has_default:
            pieces.append(encode_one(field.node, default_array(field), at))
        elif field.node.takes_null:
            pieces.append(encode_one(field.node, pa.nulls(1), at))
        else:
            raise MisfitError(
                f"{at} is missing: the Avro schema {node.name} has it, without a default",
                "add the field, or write with a schema that has a default for it",
            )
    extra = [name for name in names if name not in used]
    if extra:
        raise MisfitError(
            f"{path} has {', '.join(extra)}, which the Avro schema {node.name} has not",
            "leave it out, or register a version of the schema that has it",
        )
    return pieces


def encode_one(node: Node, value: pa.Array, path: str) -> pa.BinaryScalar:
    """The encoding of a column's only value, which may be null in a union."""
    pieces = _pieces(node, value, path)
    # The row is there, whether its value is null or not.
    return _whole(pieces, pa.array([True]))[0]


def _union(node: Node, array: pa.Array, path: str, live: Live) -> Sequence[Piece]:
    at, inner = _branch(node, array, path)
    if at is None:
        return _members(node, array, path, live)
    null = next((n for n, branch in enumerate(node.inner) if branch.kind == "null"), None)
    if not array.null_count:
        return [_index(at), *_pieces(inner, array, path)]
    if null is None:  # the null values that count are refused
        index = pc.if_else(array.is_valid(), _index(at), None)
        return [index, *_pieces(inner, array, path, live)]
    index = pc.if_else(array.is_valid(), _index(at), _index(null))
    within = pa.array(np.zeros(len(array), bool))  # null is allowed
    pieces = _pieces(inner, array, path, within)
    if inner.kind == "record":
        pieces = [_whole(pieces, array)]
    return [index, *pieces]


def _branch(node: Node, array: pa.Array, path: str) -> tuple[int | None, Node]:
    """A union's type for a column; None: it is a struct of members."""
    if pa.types.is_null(array.type):
        at = next((n for n, one in enumerate(node.inner) if one.kind == "null"), None)
        if at is not None:
            return at, node.inner[at]
    others = [(n, one) for n, one in enumerate(node.inner) if one.kind != "null"]
    if len(others) == 1:
        return others[0]
    names = array.type.names if pa.types.is_struct(array.type) else []
    if names and names == [member(n) for n in range(len(others))]:
        return None, node
    refused = ""
    for n, branch in others:
        try:
            _pieces(branch, pa.nulls(0, array.type), path)
        except MisfitError as error:
            refused = refused or error.reason
        else:
            return n, branch
    kinds = ", ".join(one.shown for _, one in others)
    raise MisfitError(
        f"{path} is {type_name(array.type)}, and the Avro union is of {kinds}: "
        f"{refused or 'none fits'}",
        "cast it, or write a struct with the fields member0, member1, ... of which one is not null",
    )


def _members(node: Node, array: pa.Array, path: str, live: Live) -> Sequence[Piece]:
    """Of the struct's members one is set; or none, if the union takes null."""
    others = [n for n, branch in enumerate(node.inner) if branch.kind != "null"]
    columns = array.flatten()
    count = sum(column.is_valid().cast(pa.int8()).to_numpy(False) for column in columns)
    allowed = (0, 1) if node.takes_null else (1,)
    wrong = pa.array(~np.isin(count, allowed))
    why = "set none or several members of an Avro union, of which one must be set"
    remedy = "set exactly one; none is null, where the union has it"
    refuse(
        Reason(Code.MALFORMED, path, why, remedy), wrong if live is None else pc.and_(wrong, live)
    )
    pieces: list[Piece] = []
    for n, column in zip(others, columns, strict=True):
        index = pc.if_else(column.is_valid(), _index(n), None)
        inner = node.inner[n]
        within = pa.array(np.zeros(len(array), bool))
        own = _pieces(inner, column, f"{path}.{member(others.index(n))}", within)
        pieces += [index, _whole(own, column)] if inner.kind == "record" else [index, *own]
    if node.takes_null:
        null = next(n for n, branch in enumerate(node.inner) if branch.kind == "null")
        pieces.append(pc.if_else(pa.array(count == 0), _index(null), None))
    return pieces


def _array(node: Node, array: pa.Array, path: str) -> Sequence[Piece]:
    if not pa.types.is_list(array.type):
        raise _misfit(node, array.type, path, "write an array")
    offsets, values = list_parts(array)
    with inside(lambda: parents_of(array)):
        items = _whole(_pieces(node.inner[0], values, f"{path}[]"), _all(values))
    return _blocks(array, offsets, items)


def _map(node: Node, array: pa.Array, path: str) -> Sequence[Piece]:
    if not pa.types.is_map(array.type) or not _is_text(array.type.key_type):
        raise _misfit(node, array.type, path, "write a map whose keys are strings")
    if array.null_count:
        array = array.take(pa.array(np.arange(len(array))))  # leaves out what lies beneath a null
    offsets = array.offsets.to_numpy().astype(np.int64)
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    keys, values = array.keys.slice(first, count), array.items.slice(first, count)
    with inside(lambda: np.repeat(np.arange(len(array)), np.diff(offsets))):
        pieces = [
            *leaf_pieces(Node("string"), keys, f"{path}.key"),
            *_pieces(node.inner[0], values, f"{path}{{}}"),
        ]
        items = _whole(pieces, _all(keys))
    return _blocks(array, offsets - first, items)


def _is_text(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_string(arrow))


def _all(values: pa.Array) -> pa.Array:
    """Items are there, whether null or not."""
    return pa.repeat(True, len(values))


def _blocks(array: pa.Array, offsets: Any, items: pa.BinaryArray) -> Sequence[Piece]:
    """Items of each row as one block, and the end of the blocks."""
    # The items of one row lie side by side: their bytes are those of the row.
    ends = offsets_of(items)[offsets].astype(np.int32)
    data = items.buffers()[2] if len(items) else pa.py_buffer(b"")
    joined = pa.Array.from_buffers(pa.binary(), len(array), [None, pa.py_buffer(ends), data])
    counts = np.diff(offsets)
    last = pc.if_else(pa.array(counts > 0), pa.scalar(b"\0", pa.binary()), _NOTHING)
    pieces = [number(zigzag(counts)), joined, last]
    return [masked(piece, array) for piece in pieces] if array.null_count else pieces


def _index(branch: int) -> pa.BinaryScalar:
    index = number(zigzag(np.array([branch], np.int64)))
    return index if isinstance(index, pa.Scalar) else index[0]


def _misfit(node: Node, arrow: pa.DataType, path: str, remedy: str) -> MisfitError:
    return MisfitError(
        f"{path} is {type_name(arrow)}, and the Avro schema has {node.shown}", remedy
    )
