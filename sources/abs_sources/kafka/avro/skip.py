"""Finds where values end, one after the other: for long lists of few records.

``resolve`` reads one value of each record at a time. A list that is much longer than there are records
would cost as many such steps as it has items. Its items' places are found here first; then all are read
at once.
"""

from __future__ import annotations

from collections.abc import Callable

from abs_clients.avro.schema import Node
from abs_sources.kafka.avro.leaves import width

Skip = Callable[[memoryview, int], int]
"""The offset behind the value at an offset; raises IndexError or ValueError where none is there."""


def skipping(node: Node) -> Skip:
    """The function that steps over values of this schema."""
    size = width(node)
    if size is not None:
        return lambda data, at: at + size
    match node.kind:
        case "string" | "bytes":
            return _text
        case "record":
            return _in_turn([skipping(field.node) for field in node.fields])
        case "union":
            branches = [skipping(inner) for inner in node.inner]
            return lambda data, at: _branch(data, at, branches)
        case "array":
            item, wide = skipping(node.inner[0]), width(node.inner[0])
            return lambda data, at: _blocks(data, at, item, wide)
        case "map":
            pair = _in_turn([_text, skipping(node.inner[0])])
            return lambda data, at: _blocks(data, at, pair, None)
    return _past_number


def _in_turn(steps: list[Skip]) -> Skip:
    def skip(data: memoryview, at: int) -> int:
        for step in steps:
            at = step(data, at)
        return at

    return skip


def _past_number(data: memoryview, at: int) -> int:
    while data[at] >= 0x80:
        at += 1
    return at + 1


def _number(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := data[at]) >= 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
    value |= byte << shift
    return (value >> 1) ^ -(value & 1), at + 1


def _text(data: memoryview, at: int) -> int:
    length, at = _number(data, at)
    if length < 0:
        raise ValueError("a length below zero")
    return at + length


def _branch(data: memoryview, at: int, branches: list[Skip]) -> int:
    number, at = _number(data, at)
    if number < 0:
        raise ValueError("no such branch")
    return branches[number](data, at)


def _blocks(data: memoryview, at: int, item: Skip, wide: int | None) -> int:
    while True:
        count, at = _number(data, at)
        if count == 0:
            return at
        if count < 0:
            count = -count
            _, at = _number(data, at)  # the block's size, which a reader of values does not need
        if wide is not None:
            at += count * wide
            continue
        for _ in range(count):  # each takes a byte at least, so the end of the data ends this
            at = item(data, at)
