"""Canonical text of JSON and of nested values, so that a struct can be compared with a jsonb.

JSON has no NaN, timestamps or decimals of its own, so the text is read by the type of the side that
has one. Slow, compared with the rest (one Python call a value): about 10 us for a small document.
It is the only place of the audit that looks at single records.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from abs_audit.families import EXACT_NUMBERS, Family, Type


def canonicaliser(common: Type) -> Callable[[pa.Array], pa.Array]:
    """A function over Arrow arrays of JSON text, NULL for NULL; equal values give equal text.

    Object keys are sorted, a field of a struct that is null counts as absent, and a key that the
    struct does not have is kept, so that it shows as a difference.

    The function raises ValueError for what is not JSON, or not of the type.
    """

    def apply(texts: pa.Array) -> pa.Array:
        return pa.array([_canonical_text(text, common) for text in texts.to_pylist()], pa.string())

    return apply


def plain_decimal(texts: pa.Array) -> pa.Array:
    """Decimal text in any notation (``+007``, ``1e3``) to plain notation without needless zeros."""
    return pa.array([_plain(text) for text in texts.to_pylist()], pa.string())


def _canonical_text(text: str | None, common: Type) -> str | None:
    if text is None:
        return None
    value = json.loads(text, parse_float=Decimal, parse_int=Decimal)
    return json.dumps(_value(value, common), sort_keys=True, ensure_ascii=False)


def _value(value: Any, common: Type) -> Any:
    """The JSON value in canonical form: numbers become marked text, all else stays JSON."""
    if value is None:
        return None
    children = dict(common.children)
    match common.family:
        case Family.JSON:
            return _any_json(value)
        case Family.LIST if isinstance(value, list):
            return [_value(item, children["element"]) for item in value]
        case Family.MAP if isinstance(value, dict):
            return {key: _value(item, children["value"]) for key, item in value.items()}
        case Family.STRUCT if isinstance(value, dict):
            fields = {
                name: _value(item, children[name]) if name in children else _any_json(item)
                for name, item in value.items()
            }
            return {name: item for name, item in fields.items() if item is not None}
        case Family.LIST | Family.MAP | Family.STRUCT:
            raise ValueError(f"{json.dumps(value, default=str)[:80]} is no {common.family}")
        case _:
            return _leaf(value, common)


def _leaf(value: Any, common: Type) -> Any:
    if common.family in EXACT_NUMBERS:
        return {"number": _plain(str(value))}
    if common.family is Family.FLOAT:
        number = float(value)
        if common.precision == 32:
            (number,) = struct.unpack("f", struct.pack("f", number))
        return {"float": "nan" if number != number else repr(number + 0.0)}
    reader = _TEXT_READERS.get(common.family)
    if reader is None or not isinstance(value, str):
        return _any_json(value)
    try:
        return reader(value)
    except ValueError:
        return value  # infinity, years that Python does not know: compared as text


def _any_json(value: Any) -> Any:
    if isinstance(value, Decimal):
        return {"number": _plain(str(value))}
    if isinstance(value, float):  # NaN and Infinity, which Python's reader lets through
        return {"float": repr(value)}
    if isinstance(value, list):
        return [_any_json(item) for item in value]
    if isinstance(value, dict):
        return {key: _any_json(item) for key, item in value.items()}
    return value


def _plain(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"not a number: {text[:80]!r}") from None
    if not number.is_finite():
        return "NaN" if number.is_nan() else f"{'-' if number < 0 else ''}Infinity"
    plain = format(number, "f")
    plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
    return "0" if plain == "-0" else plain


_NANOSECONDS = re.compile(r"\.\d{6}\d*[1-9]")


def _instant(text: str) -> str:
    if _NANOSECONDS.search(text):
        return text  # datetime would cut them off
    moment = datetime.fromisoformat(text)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC).isoformat()


_TEXT_READERS: dict[Family, Callable[[str], str]] = {
    Family.INSTANT: _instant,
    Family.DATE: lambda text: date.fromisoformat(text).isoformat(),
    Family.TIME: lambda text: time.fromisoformat(text).isoformat(),
    Family.UUID: str.lower,
    Family.BINARY: str.lower,
}
