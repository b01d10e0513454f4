"""Canonical text of JSON and nested values, so that a struct can be compared with a jsonb.

JSON has no NaN, timestamps or decimals, so text is read by the type of the side that has one. One
Python call per value: about 10 us for a small document.
"""

from __future__ import annotations

import json
import math
import re
import struct
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from abs_audit.families import EXACT_NUMBERS, Family, Type


def canonicaliser(common: Type) -> Callable[[pa.Array], pa.Array]:
    """A function over Arrow arrays of JSON text: equal values give equal text, NULL gives NULL.

    Object keys are sorted, a null field of a struct counts as absent, and a key that the struct
    does not have is kept as a difference. Floats are rounded from their digits. Text that is not of
    the type, is not JSON, or is nested hundreds of levels deep is kept: it equals only itself.
    """

    def apply(texts: pa.Array) -> pa.Array:
        return pa.array([_canonical_text(text, common) for text in texts.to_pylist()], pa.string())

    return apply


def plain_decimal(texts: pa.Array) -> pa.Array:
    """Decimal text (``+007``, ``1e3``) in plain notation; raises ValueError for other text."""
    return pa.array([_parsed(text) for text in texts.to_pylist()], pa.string())


def _parsed(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return _plain(Decimal(text))
    except InvalidOperation:
        raise ValueError(f"not a number: {text[:80]!r}") from None


def _canonical_text(text: str | None, common: Type) -> str | None:
    if text is None:
        return None
    try:
        value = json.loads(text, parse_float=Decimal, parse_int=Decimal)
        return json.dumps(_value(value, common), sort_keys=True, ensure_ascii=False)
    except RecursionError:
        return f"too deep: {text}"
    except ValueError:
        return f"no JSON: {text}"


def _value(value: Any, common: Type) -> Any:
    """The JSON value in canonical form: arrays and numbers are tagged, others unchanged."""
    children = dict(common.children)
    match common.family, value:
        case Family.LIST, list():
            return ["list", [_value(item, children["element"]) for item in value]]
        case Family.MAP, dict():
            keys = {key: _key(key, children["key"]) for key in value}
            if len(set(keys.values())) < len(keys):  # 0.0 and -0.0
                keys = {key: key for key in keys}
            return {keys[key]: _value(item, children["value"]) for key, item in value.items()}
        case Family.STRUCT, dict():
            fields = {
                name: _value(item, children[name]) if name in children else _any_json(item)
                for name, item in value.items()
            }
            return {name: item for name, item in fields.items() if item is not None}
        case Family.FLOAT, Decimal() | float() | "NaN" | "Infinity" | "-Infinity":
            return _float(value, common)
        case family, str() if family in _TEXT_READERS:
            return _read(value, _TEXT_READERS[family])
        case _:
            return _any_json(value)


def _key(text: str, common: Type) -> str:
    """The text of a map's key, which JSON has for keys of all types."""
    if common.family in _TEXT_READERS:
        return _read(text, _TEXT_READERS[common.family])
    if common.family is Family.FLOAT:
        return str(_float(text, common)[1])
    return _read(text, lambda t: str(_parsed(t))) if common.family in EXACT_NUMBERS else text


def _any_json(value: Any) -> Any:
    match value:
        case Decimal():
            return ["number", _plain(value)]
        case float():  # NaN and Infinity, which Python's reader lets through
            return ["float", repr(value)]
        case list():
            return ["list", [_any_json(item) for item in value]]
        case dict():
            return {key: _any_json(item) for key, item in value.items()}
        case _:
            return value


def _float(value: Decimal | float | str, common: Type) -> Any:
    number = float(value)
    try:
        if common.precision == 32:
            (number,) = struct.unpack("f", struct.pack("f", number))
    except OverflowError:
        return _any_json(value)
    if isinstance(value, Decimal) and math.isinf(number):
        return _any_json(value)  # too large for a float, and not infinite
    return ["float", "nan" if math.isnan(number) else repr(number + 0.0)]


def _read(text: str, reader: Callable[[str], str]) -> str:
    try:
        return reader(text)
    except ValueError:
        return text  # infinity, years that Python does not know: compared as text


def _plain(number: Decimal) -> str:
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


def _bytes(text: str) -> str:
    """Hexadecimal digits, of such (in jsonb), or of Base64 (in JSON files), which has no backslash."""
    return text.lower() if text.startswith("\\x") else "\\x" + b64decode(text, validate=True).hex()


_TEXT_READERS: dict[Family, Callable[[str], str]] = {
    Family.INSTANT: _instant,
    Family.DATE: lambda text: date.fromisoformat(text).isoformat(),
    Family.TIME: lambda text: time.fromisoformat(text).isoformat(),
    Family.UUID: str.lower,
    Family.BINARY: _bytes,
}
