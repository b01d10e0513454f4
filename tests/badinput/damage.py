"""Damages what is kept, at random. A case is a few damages; it is made smaller if it fails."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

Damage = Callable[[bytes], bytes]
Named = tuple[str, Damage]

VALUES: tuple[tuple[str, object], ...] = (
    ("null", None),
    ("true", True),
    ("a fraction", 1.5),
    ("-1", -1),
    ("0", 0),
    ("64 bits and one", 2**63),
    ("10**18", 10**18),
    ("a negative number of 64 bits", -(2**63)),
    ("no text", ""),
    ("a text", "text"),
    ("a digit of another script", "\u0661"),
    ("a zero byte", "a\0b"),
    ("a lone surrogate", "\ud800"),
    ("a long text", "x" * 100_000),
    ("a list", []),
    ("an object", {}),
    ("a list of a list", [[1, 2, 3]]),
    ("a text in a list", ["a"]),
    ("an object in a list", [{"a": 1}]),
)
_RAW: tuple[tuple[str, str], ...] = (
    ("a thousand levels", "[" * 1000 + "]" * 1000),
    ("a hundred thousand levels", "[" * 100_000 + "]" * 100_000),
    ("objects, a thousand levels", '{"a":' * 1000 + "1" + "}" * 1000),
    ("a thousand digits", "9" * 1000),
    ("ten thousand digits", "9" * 10_000),
    ("NaN", "NaN"),
    ("infinity", "-Infinity"),
    ("1e999", "1e999"),
    ("half an escape", '"\\udcff"'),
)
_MARK = "a mark that is replaced"


def cases(
    content: bytes, count: int, chance: Random
) -> Iterator[tuple[list[str], list[Damage], bytes]]:
    """So many damaged contents: what was done to each, by which functions, and the result."""
    for _ in range(count):
        done = [_damage(content, chance) for _ in range(chance.choice((1, 1, 1, 2, 3)))]
        names, steps = [name for name, _ in done], [step for _, step in done]
        yield names, steps, applied(content, steps)


def applied(content: bytes, steps: Sequence[Damage]) -> bytes:
    """The content after these damages."""
    for step in steps:
        content = step(content)
    return content


def smallest(
    content: bytes, names: Sequence[str], steps: Sequence[Damage], fails: Callable[[bytes], bool]
) -> str:
    """What is left of a failing case when every damage is taken away that it fails without."""
    kept = list(zip(names, steps, strict=True))
    for one in list(kept):
        fewer = [other for other in kept if other is not one]
        if fewer and fails(applied(content, [step for _, step in fewer])):
            kept = fewer
    return ", then ".join(name for name, _ in kept)


def _damage(content: bytes, chance: Random) -> Named:
    kinds: list[Callable[[bytes, Random], Named | None]] = [_field] * 6
    kinds += [_raw, _raw, _cut, _flip, _insert, _renamed]
    return chance.choice(kinds)(content, chance) or _flip(content, chance)


def _field(content: bytes, chance: Random) -> Named | None:
    """Another value in the place of one; or a field that is gone."""
    where = _places(content)
    if not where:
        return None
    place = chance.choice(where)
    if chance.random() < 0.2:
        return f"{_shown(place)} is gone", lambda before: _without(before, place)
    name, value = chance.choice(VALUES)
    return f"{_shown(place)} is {name}", lambda before: _with(before, place, value)


def _raw(content: bytes, chance: Random) -> Named | None:
    """What ``json.dumps`` would not write."""
    where = _places(content)
    if not where:
        return None
    place, (name, text) = chance.choice(where), chance.choice(_RAW)

    def damaged(before: bytes) -> bytes:
        return _with(before, place, _MARK).replace(json.dumps(_MARK).encode(), text.encode())

    return f"{_shown(place)} is {name}", damaged


def _renamed(content: bytes, chance: Random) -> Named | None:
    """A number is another one."""
    where = [place for place in _places(content) if type(_at(content, place)) is int]
    if not where:
        return None
    place, number = chance.choice(where), chance.choice((-(10**9), -2, 2, 3, 17, 10**9))
    return f"{_shown(place)} is {number}", lambda before: _with(before, place, number)


def _cut(content: bytes, chance: Random) -> Named:
    size = chance.randrange(len(content) + 1)
    return f"cut to {size} bytes", lambda before: before[:size]


def _flip(content: bytes, chance: Random) -> Named:
    at, bit = chance.randrange(max(1, len(content))), chance.randrange(8)

    def damaged(before: bytes) -> bytes:
        if at >= len(before):
            return before
        return before[:at] + bytes([before[at] ^ 1 << bit]) + before[at + 1 :]

    return f"bit {bit} of byte {at} flipped", damaged


def _insert(content: bytes, chance: Random) -> Named:
    at = chance.randrange(len(content) + 1)
    more = chance.choice((b"\0", b"\xff", b"[", b"}", b'"', b"\xed\xa0\x80", b"1" * 50))
    return f"{more!r} before byte {at}", lambda before: before[:at] + more + before[at:]


Place = tuple[str | int, ...]


def _places(content: bytes) -> list[Place]:
    """Every place in a JSON value, its root included; none where it is no JSON."""
    try:
        return list(_below(json.loads(content), ()))
    except ValueError:
        return []


def _below(value: Any, place: Place) -> Iterator[Place]:
    yield place
    if isinstance(value, dict):
        for name in value:
            yield from _below(value[name], (*place, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _below(item, (*place, number))


def _at(content: bytes, place: Place) -> Any:
    value = json.loads(content)
    for step in place:
        value = value[step]
    return value


def _with(content: bytes, place: Place, new: object) -> bytes:
    return _changed(content, place, lambda holder, last: holder.__setitem__(last, new), new)


def _without(content: bytes, place: Place) -> bytes:
    return _changed(content, place, lambda holder, last: holder.__delitem__(last), None)


def _changed(
    content: bytes, place: Place, change: Callable[[Any, str | int], None], root: object
) -> bytes:
    """The content with a change at a place; as it is where an earlier damage took the place away."""
    try:
        value = copy.deepcopy(json.loads(content))
        if not place:
            return json.dumps(root).encode()
        holder = value
        for step in place[:-1]:
            holder = holder[step]
        change(holder, place[-1])
        return json.dumps(value).encode()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return content


def _shown(place: Place) -> str:
    return "/".join(map(str, place)) or "all of it"
