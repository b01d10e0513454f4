"""COPY's text format (manual, COPY, Text Format): fields with backslash escapes, NULL as ``\\N``.

It is for types whose binary form only the server knows (inet, ranges, tsvector, types of extensions):
strings are passed on as the type's text input.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from abs_clients.arrow import is_list
from abs_sinks.jsontext import joined, json_text
from abs_sinks.postgres.payload import unnest
from abs_sinks.postgres.types import PgType, becomes_json
from abs_sinks.refusals import inside, parents_of
from abs_sinks.text import plain_text

NULL = r"\N"


def copy_text(array: pa.Array, pg: PgType, column: str) -> pa.StringArray:
    """Each value as a field of COPY's text format.

    Args:
        array: of the type that ``fit`` chose, after ``check_values``.
        column: its name, for messages.

    Raises:
        RowError: nested lists are not rectangular; a date lies outside the years 1 to 9999.
    """
    if pa.types.is_null(array.type):
        return pa.repeat(NULL, len(array))
    text = _text(array, pg, column)
    if pc.any(pc.match_substring_regex(text, r"[\\\n\r\t]")).as_py():
        for character, escape in (("\\", r"\\"), ("\n", r"\n"), ("\r", r"\r"), ("\t", r"\t")):
            text = pc.replace_substring(text, character, escape)
    return text.fill_null(NULL)


def _text(array: pa.Array, pg: PgType, column: str) -> pa.StringArray:
    if becomes_json(array.type, pg):
        return json_text(array, column)
    if pg.element is not None and is_list(array.type):
        unnest(array, column)  # refuses what is not rectangular
        return _array_literal(array, pg.element, column)
    if pg.name == "uuid" and pa.types.is_binary(array.type):
        return pc.utf8_slice_codeunits(plain_text(array, column), 2)
    if pa.types.is_duration(array.type):
        # PostgreSQL writes the minimum as a clock, and cannot read it.
        ticks = array.view(pa.int64()).cast(pa.string())
        return pc.binary_join_element_wise(ticks, "microseconds", " ")
    return plain_text(array, column)


def _array_literal(array: pa.Array, element: PgType, column: str) -> pa.StringArray:
    """Manual, 8.15.2: {"a","b\\"c",NULL}; inner arrays are not quoted."""
    inner = array.flatten()
    if is_list(inner.type):
        with inside(lambda: parents_of(array)):
            items = _array_literal(inner, element, column)
    elif pa.types.is_null(inner.type):
        items = pa.repeat("NULL", len(inner))
    else:
        with inside(lambda: parents_of(array)):
            items = _text(inner, element, column)
        items = pc.replace_substring(pc.replace_substring(items, "\\", "\\\\"), '"', '\\"')
        items = pc.binary_join_element_wise('"', items, '"', "").fill_null("NULL")
    text = joined(items, pc.list_value_length(array), "{", "}")
    return pc.if_else(array.is_valid(), text, None) if array.null_count else text
