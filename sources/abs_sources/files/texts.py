"""Reads values from their text, in CSV and JSON: in one form for each type, or not at all.

Arrow's own conversions take more than Spark's reader (blanks around numbers, hexadecimal numbers, 1
as true, times without an offset), so a pattern decides first.
"""

from __future__ import annotations

import base64
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

_NUMBER = r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_OFFSET = "(Z|[+-](0[0-9]|1[0-7])(:?[0-5][0-9])?)"

_types = pa.types
_FORMS: tuple[tuple[Callable[[pa.DataType], bool], str, str], ...] = (
    (_types.is_boolean, "(?i:true|false)", "true or false"),
    (_types.is_integer, "-?[0-9]+", "digits"),
    (_types.is_floating, f"{_NUMBER}|NaN|nan|-?(Infinity|Inf|inf)", "a number"),
    (_types.is_decimal, _NUMBER, "a number"),
    (_types.is_date, _DATE, "2026-01-02"),
    (_types.is_time, _TIME, "03:04:05"),
    (lambda to: _types.is_timestamp(to) and to.tz is not None, f"{_DATE}[T ]{_TIME}{_OFFSET}",
     "2026-01-02T03:04:05Z, with an offset"),
    (_types.is_timestamp, f"{_DATE}[T ]{_TIME}", "2026-01-02T03:04:05, without an offset"),
)  # fmt: skip


def from_text(array: pa.Array, to: pa.DataType, path: str) -> pa.Array:
    """A ``Leaf``: values of type ``to`` from texts in its form; binary has the texts' bytes.

    Raises ArrowInvalid for a text in another form, ArrowNotImplementedError for a type without one.
    """
    if array.type.equals(to) or _types.is_binary(to):
        return array.cast(to)
    for is_kind, pattern, shown in _FORMS:
        if is_kind(to):
            _require(array, f"^({pattern})$", path, shown)
            if _types.is_time(to):
                array = pc.binary_join_element_wise("1970-01-01T", array, "").cast(
                    pa.timestamp("us")
                )
            return array.cast(to)
    raise pa.ArrowNotImplementedError(f"no text of {path} is read as {to}; read it as a string")


def from_base64(array: pa.Array, to: pa.DataType, path: str) -> pa.Array:
    """As ``from_text``; binary is Base64, as Spark writes it into JSON."""
    if not _types.is_binary(to):
        return from_text(array, to, path)
    _require(array, _BASE64, path, "Base64")  # b64decode takes padding behind the end
    return pa.array([t if t is None else base64.b64decode(t) for t in array.to_pylist()], to)


def _require(array: pa.Array, pattern: str, path: str, shown: str) -> None:
    fits = pc.match_substring_regex(array, pattern)
    if pc.all(fits).as_py() is False:
        wrong = array.filter(pc.invert(fits))[0].as_py()
        raise pa.ArrowInvalid(f"{path} is {wrong[:80]!r}; its form is {shown}")
