"""Converts lists, structs and maps to exact JSON text, column by column.

Scalars are written as by PostgreSQL's ``to_jsonb``: numbers in full (decimals keep every
digit), NaN and the infinities as strings (JSON has no such numbers; Spark's ``to_json`` does the
same), dates and times as ISO text with the zone (UTC), bytes as ``"\\x00ff"``. NULL fields are kept
as null. Keys of maps become strings.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abs_clients.arrow import is_list, type_name
from abs_sinks.refusals import Code, MisfitError, Reason, check_text, inside, parents_of, refuse
from abs_sinks.text import plain_text


def require_json(plain: pa.DataType) -> None:
    """Raise ``MisfitError`` for types without a JSON form: variants, nested keys, double names."""
    if is_list(plain):
        require_json(plain.value_type)
    elif pa.types.is_map(plain):
        if pa.types.is_nested(plain.key_type):
            raise MisfitError(
                f"a map with keys of type {type_name(plain.key_type)} has no JSON form",
                "take strings as keys, or map_entries() in Spark",
            )
        require_json(plain.key_type)
        require_json(plain.item_type)
    elif pa.types.is_struct(plain):
        refuse_tagged(plain)
        names = [field.name for field in plain]
        if len(set(names)) < len(names):
            raise MisfitError(
                f"{type_name(plain)} has two fields of one name; jsonb would keep only one",
                "rename one",
            )
        for field in plain:
            require_json(field.type)
    elif pa.types.is_nested(plain) or pa.types.is_decimal256(plain):
        raise MisfitError(f"Arrow type {type_name(plain)} is not supported", "cast it in Spark")


def refuse_tagged(plain: pa.DataType) -> None:
    """Raise ``MisfitError`` for variants, geometries, geographies (pyspark/sql/pandas/types.py)."""
    for field in plain if pa.types.is_struct(plain) else ():
        tags = field.metadata or {}
        if tags.get(b"variant") == b"true":
            raise MisfitError(
                "VARIANT arrives in Spark's own binary encoding",
                "convert it with to_json() in Spark; a jsonb column takes that text",
            )
        if b"geometry" in tags or b"geography" in tags:
            raise MisfitError(
                "GEOMETRY and GEOGRAPHY are not supported",
                "convert with st_asbinary() in Spark, for a bytea column",
            )


def check_keys(array: pa.Array, column: str) -> None:
    """Refuse maps that have one key twice, at any depth: readers of JSON keep only one entry.

    Args:
        array: in a plain type, of those that ``require_json`` takes.

    Raises:
        BadValuesError: of the column's rows.
    """
    arrow = array.type
    if is_list(arrow):
        with inside(lambda: parents_of(array)):
            check_keys(array.flatten(), column)
    elif pa.types.is_struct(arrow):
        for values in array.flatten() if arrow.num_fields else ():
            check_keys(values, column)
    elif pa.types.is_map(arrow):
        keys, items, lengths = _entries(array)
        parents = np.repeat(np.arange(len(array)), lengths.to_numpy(zero_copy_only=False))
        with inside(lambda: parents):
            texts = plain_text(keys, column).dictionary_encode(null_encoding="encode").indices
            check_keys(items, column)
        numbers = texts.to_numpy(zero_copy_only=False).astype(np.int64)
        size = int(numbers.max(initial=0)) + 1
        pairs, counts = np.unique(parents * size + numbers, return_counts=True)
        twice = np.zeros(len(array), bool)
        twice[pairs[counts > 1] // size] = True
        why = "are maps with one key twice, of which JSON readers keep only one entry"
        refuse(Reason(Code.MALFORMED, column, why, "correct or filter them in Spark"), twice)


Texts = Callable[[pa.Array, str], pa.StringArray]
"""The texts of plain scalars, as ``plain_text`` has them."""


def json_text(array: pa.Array, column: str, texts: Texts = plain_text) -> pa.StringArray:
    """JSON text of each value; null (not the JSON null) for null.

    Args:
        array: a plain list, struct or map.
        column: its name, for messages; empty if the struct is a whole row, whose fields have names.
        texts: for another form of some scalars.

    Raises:
        RowError: a text holds a NUL or is no UTF-8; a date lies outside the years 1 to 9999.
    """
    text = _json(array, column, texts)
    return pc.if_else(array.is_valid(), text, None) if array.null_count else text


def _json(array: pa.Array, column: str, texts: Texts) -> pa.StringArray:
    """JSON text of each value, the text null for null."""
    arrow = array.type
    if pa.types.is_null(arrow):
        return pa.repeat("null", len(array))
    if is_list(arrow):
        with inside(lambda: parents_of(array)):
            items = _json(array.flatten(), column, texts)
        text = joined(items, pc.list_value_length(array), "[", "]")
    elif pa.types.is_map(arrow):
        text = _map(array, column, texts)
    elif pa.types.is_struct(arrow):
        text = _struct(array, column, texts)
    else:
        text = _scalar(array, column, texts)
    return pc.if_else(array.is_valid(), text, "null") if array.null_count else text


def _scalar(array: pa.Array, column: str, texts: Texts) -> pa.StringArray:
    arrow = array.type
    text = texts(array, column)
    if pa.types.is_boolean(arrow) or pa.types.is_integer(arrow) or pa.types.is_decimal(arrow):
        return text
    if pa.types.is_floating(arrow):
        return pc.if_else(pc.is_finite(array), text, _quoted(text))
    if pa.types.is_string(arrow):
        check_text(text, column)
    elif not pa.types.is_binary(arrow):  # dates and times have nothing to escape
        return _quoted(text)
    return _quoted(_escaped(text))


_MUST_ESCAPE = r'[\x00-\x1f"\\]'
_CONTROLS = {"\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t"}


def _escaped(text: pa.StringArray) -> pa.StringArray:
    """RFC 8259, section 7."""
    if not pc.any(pc.match_substring_regex(text, _MUST_ESCAPE)).as_py():
        return text
    text = pc.replace_substring(text, "\\", "\\\\")
    text = pc.replace_substring(text, '"', '\\"')
    if pc.any(pc.match_substring_regex(text, r"[\x00-\x1f]")).as_py():
        for code in range(1, 0x20):
            control = chr(code)
            text = pc.replace_substring(text, control, _CONTROLS.get(control, f"\\u{code:04x}"))
    return text


def _quoted(text: pa.StringArray) -> pa.StringArray:
    return pc.binary_join_element_wise('"', text, '"', "")


def _struct(array: pa.Array, column: str, texts: Texts) -> pa.StringArray:
    pieces: list[pa.Array | str] = []
    # flatten() carries the struct's own nulls over to its fields.
    for field, values in zip(array.type, array.flatten(), strict=True):
        name = _quoted(_escaped(pa.array([field.name])))[0].as_py()
        pieces += [f"{',' if pieces else '{'}{name}:", _json(values, column or field.name, texts)]
    if not pieces:
        return pa.repeat("{}", len(array))
    return pc.binary_join_element_wise(*pieces, "}", "")


def _entries(array: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Keys and items of all maps, and how many each map has; those under a null map are dropped."""
    offsets = array.offsets.to_numpy()
    lengths = pc.if_else(array.is_valid(), pa.array(np.diff(offsets)), 0)
    first, entries = int(offsets[0]), int(offsets[-1]) - int(offsets[0])
    keys, items = array.keys.slice(first, entries), array.items.slice(first, entries)
    if pc.sum(lengths).as_py() != entries and entries:
        belong = np.repeat(array.is_valid().to_numpy(zero_copy_only=False), np.diff(offsets))
        keys, items = keys.filter(pa.array(belong)), items.filter(pa.array(belong))
    return keys, items, lengths


def _map(array: pa.Array, column: str, texts: Texts) -> pa.StringArray:
    keys, items, lengths = _entries(array)
    with inside(lambda: np.repeat(np.arange(len(array)), lengths.to_numpy(zero_copy_only=False))):
        name = texts(keys, column)
        if pa.types.is_string(keys.type):
            check_text(keys, column)
        pairs = pc.binary_join_element_wise(
            _quoted(_escaped(name)), _json(items, column, texts), ":"
        )
    return joined(pairs, lengths, "{", "}")


def joined(items: pa.StringArray, lengths: pa.Array, start: str, end: str) -> pa.StringArray:
    """Join runs of these lengths by commas, between two brackets."""
    counts = lengths.fill_null(0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    lists = pa.ListArray.from_arrays(offsets, items)
    return pc.binary_join_element_wise(start, pc.binary_join(lists, ","), end, "")
