"""What Debezium sends for a large value that an update did not change."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from pyspark.sql import types as T  # noqa: N812 - as Spark users call it

from abs_spark.cdc.target import TargetColumn, bare

Test = Callable[[Any], bool]


def unchanged(target: TargetColumn, name: str) -> Test:
    """Whether a value that is sent is the placeholder, in the form of the column.

    Args:
        name: ``unavailable.value.placeholder``.
    """
    forms = list(_forms(target, name))
    texts = frozenset(form for form in forms if isinstance(form, (str, bytes)))
    others = [form for form in forms if not isinstance(form, (str, bytes))]

    def test(value: Any) -> bool:
        if isinstance(value, (str, bytes)):
            return value in texts
        return isinstance(value, (list, dict)) and value in others

    return test


def _forms(target: TargetColumn, name: str) -> Iterable[Any]:
    data = name.encode()
    if target.items is not None:
        yield [name]
        yield from ([form] for form in _bytes(data))
        yield [*data]  # of integers and dates: a number for each byte
        yield [str(uuid_of(data))]
        return
    yield name
    yield {name: name}
    yield [(name, name)]  # a map, of Avro
    if bare(target.pg) == "hstore" or not target.pg:
        yield json.dumps({name: name}, separators=(",", ":"), ensure_ascii=False)
    if isinstance(target.spark, T.BinaryType):
        yield from _bytes(data)


def _bytes(data: bytes) -> Iterable[str | bytes]:
    yield data
    yield base64.b64encode(data).decode()
    yield base64.urlsafe_b64encode(data).decode()
    yield data.hex()


def uuid_of(data: bytes) -> UUID:
    """The UUID that Java makes of bytes by their MD5."""
    from hashlib import md5

    return UUID(bytes=md5(data, usedforsecurity=False).digest(), version=3)


_SENT = frozenset(
    {"text", "varchar", "bpchar", "json", "jsonb", "bytea", "int4", "date", "int8", "uuid"}
)
"""The items of the arrays that Debezium has a placeholder for."""


def sent_as_null(targets: Iterable[TargetColumn]) -> list[str]:
    """The columns whose large values Debezium sends as NULL where an update did not change them."""
    return [
        target.name
        for target in targets
        if target.items is not None and target.pg and target.items.pg not in _SENT
    ]
