"""Random types and values, the extremes among them, and how tests show a value."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

UTC_US = pa.timestamp("us", "UTC")
SCALARS: list[pa.DataType] = [
    *(pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.binary()),
    *(pa.date32(), pa.timestamp("us"), UTC_US, pa.decimal128(9, 2), pa.decimal128(38, 10)),
]
PARTITIONS = [pa.int32(), pa.int64(), pa.string(), pa.bool_(), pa.date32(), pa.timestamp("us")]
PLAIN = [pa.int32(), pa.int64(), pa.string(), pa.bool_()]
TEXTS = [
    "",
    "a",
    "__HIVE_DEFAULT_PARTITION__",
    "null",
    "%5F_",
    "a/b=c",
    "é \ud7ff" * 9,
    "\U0001f600",
    " ",
    "'\n",
]


class Values:
    """Random types and values, the extremes among them."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def kind(self, depth: int = 0) -> pa.DataType:
        if depth > 2 or self.random.random() < 0.75:
            return self.random.choice(SCALARS)
        inner = [self.kind(depth + 1) for _ in range(self.random.randint(1, 3))]
        match self.random.choice(["list", "struct", "map"]):
            case "list":
                return pa.list_(inner[0])
            case "struct":
                return pa.struct([(f"f{n}", kind) for n, kind in enumerate(inner)])
            case _:
                # The library makes no Delta table with these in maps alone.
                return pa.map_(
                    pa.string(), pa.int64() if "timestamp[us]" in str(inner[0]) else inner[0]
                )

    def value(self, kind: pa.DataType) -> Any:
        random, types = self.random, pa.types
        if random.random() < 0.2:
            return None
        if types.is_list(kind):
            return [self.value(kind.value_type) for _ in range(random.randint(0, 3))]
        if types.is_struct(kind):
            return {field.name: self.value(field.type) for field in kind}
        if types.is_map(kind):
            keys = random.sample(TEXTS, random.randint(0, 2))
            return [(key, self.value(kind.item_type)) for key in keys]
        if types.is_integer(kind):
            top = 2 ** (kind.bit_width - 1)
            return random.choice([0, 1, -1, top - 1, -top, random.randint(-999, 999)])
        if types.is_floating(kind):
            return random.choice([0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, 2.0**100])
        if types.is_boolean(kind):
            return random.random() < 0.5
        if types.is_string(kind):
            return random.choice(TEXTS)
        if types.is_binary(kind):
            return random.choice([b"", b"\xff" * 20, b"\0", b"ab"])
        if types.is_decimal(kind):
            number = random.choice([0, 1, 10**kind.precision - 1])
            digits = tuple(map(int, str(number)))
            return Decimal((random.randint(0, 1) if number else 0, digits, -kind.scale))
        if types.is_date(kind):
            return random.choice(
                [date(1, 1, 1), date(1582, 10, 10), date(1969, 12, 31), date(9999, 12, 31)]
            )
        zone = UTC if kind.tz else None
        first, last = (
            datetime(1, 1, 1, tzinfo=zone),
            datetime(9999, 12, 31, 23, 59, 59, 999999, zone),
        )
        return random.choice([first, last, datetime(1969, 12, 31, 23, 59, 59, 999999, zone)])


def shown(value: Any) -> str:
    """A value, so that NaN equals NaN and 0.0 is not -0.0."""
    if isinstance(value, dict):
        return repr({name: shown(part) for name, part in sorted(value.items())})
    if isinstance(value, list):
        return repr([shown(part) for part in value])
    if isinstance(value, datetime) and value.tzinfo:
        return repr(value.replace(tzinfo=None))
    return repr(value)
