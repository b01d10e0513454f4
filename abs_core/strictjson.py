"""Strict reader for stored JSON, which may be damaged, forged or of another release.

Every defect is a ``ValueError``, which the caller maps to its own error (``reading``): a missing
field, a wrong type, and what ``json.loads`` accepts or answers by other errors (deep nesting, numbers
of thousands of digits, NaN, lone surrogates).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from abs_core.errors import CorruptionError
from abs_core.release import RELEASE

T = TypeVar("T")

MAX_LEVELS = 64
"""The deepest allowed nesting; this project's formats have fewer than ten levels."""

LARGEST = 2**63 - 1
"""The largest number (64-bit signed); the smallest is ``-LARGEST - 1``."""

MAX_NUMBER = 10**18 - 2
"""The largest generation, epoch or checkpoint that fits a handle's name."""

NEWER = "use the release of abs-sinks that wrote it, or a newer one"
"""Remedy for a format that is newer than this release."""

_DIGITS = len(str(LARGEST)) + 1
_HALF = re.compile(r"\\u[dD][89a-fA-F]")


class NewerVersionError(ValueError):
    """A newer release wrote the value."""


def newer(release: str) -> str:
    """``NEWER``, with the release's name where that is known."""
    return f"use abs-sinks {release}, which wrote it, or a newer release" if release else NEWER


class Fields(dict[str, Any]):
    """The fields of an object; the error for a missing field names it."""

    def __missing__(self, name: str) -> Any:
        raise ValueError(f"it has no field {name!r}")


@contextmanager
def reading(subject: str, remedy: str, job: str | None = None) -> Iterator[None]:
    """Raise ``CorruptionError`` for a ``ValueError``: it is damaged, or a newer release wrote it."""
    try:
        yield
    except ValueError as error:
        raise CorruptionError(
            f"{subject} cannot be read: {error}.", job=job, remedy=f"{remedy}; or {NEWER}."
        ) from error


def parse(content: str | bytes) -> Any:
    """Parse a JSON text.

    Raises:
        ValueError: it is not JSON, or breaks a limit of this module.
    """
    try:
        text = content.decode() if isinstance(content, bytes) else content
        value = json.loads(text, parse_int=_int, parse_float=_float, parse_constant=_constant)
    except RecursionError as error:
        raise _too_deep() from error
    deep = text.count("[") + text.count("{") > MAX_LEVELS
    if deep or _HALF.search(text) is not None or not _is_unicode(text):
        _check(value)
    return value


def fields(value: object) -> Fields:
    """The value, which must be an object."""
    return Fields(of(dict, value))


def of(kind: type[T], value: object) -> T:
    """The value, which must be of exactly this type (a bool is not an int)."""
    if type(value) is not kind:
        raise ValueError(f"{shown(value)} is not of type {kind.__name__}")
    return value


def text(value: object) -> str:
    """The value, which must be a text."""
    return of(str, value)


def whole(value: object, least: int = 0, most: int = LARGEST) -> int:
    """The value, which must be an int from ``least`` to ``most``, both included."""
    number = of(int, value)
    if not least <= number <= most:
        raise ValueError(f"{number} is not a number from {least} to {most}")
    return number


def decimal(value: object, least: int = 0, most: int = LARGEST) -> int:
    """Parse a number in plain decimal digits: no plus, no space, no ``_``."""
    digits = text(value)
    if len(digits) > _DIGITS or re.fullmatch(r"-?[0-9]+", digits) is None:
        raise ValueError(f"{shown(value)} is not a number")
    return whole(int(digits), least, most)


def version(value: object, newest: int, *, name: str = "version", by: object = None) -> int:
    """The version of a format, which must be from 1 to ``newest``.

    Args:
        by: the release that wrote it, where it says so; for the error.

    Raises:
        NewerVersionError: a newer release wrote it.
    """
    number = of(int, value)
    if number > newest:
        raise NewerVersionError(
            f"it has {name} {number}, of a newer release{'' if by is None else f' ({shown(by)})'}; "
            f"this release, {RELEASE}, reads {_range(newest)}"
        )
    if number < 1:
        raise ValueError(f"{name} {number} does not exist; {RELEASE} reads {_range(newest)}")
    return number


def shown(value: object) -> str:
    """A short form of the value for errors; for a container, which may be huge, only its type."""
    if value is None or isinstance(value, (bool, int, float)):
        return str(value)
    if isinstance(value, (str, bytes)):
        return ascii(value[:50])
    return f"a {type(value).__name__}"


def _range(newest: int) -> str:
    return str(newest) if newest == 1 else f"1 to {newest}"


def _int(digits: str) -> int:
    if len(digits) > _DIGITS or not -LARGEST - 1 <= int(digits) <= LARGEST:
        raise ValueError(f"a number of {len(digits)} digits does not fit into 64 bits")
    return int(digits)


def _float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:20]} is too large for a number")
    return number


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _check(value: object) -> None:
    """Refuse deep nesting, and texts that are not Unicode."""
    level: list[Any] = [[value]]
    for _ in range(MAX_LEVELS + 1):
        items = [i for one in level for i in one]
        items += [value for one in level if isinstance(one, dict) for value in one.values()]
        for item in items:
            if isinstance(item, str) and not _is_unicode(item):
                raise ValueError(f"{shown(item)} contains an unpaired surrogate")
        level = [item for item in items if isinstance(item, (list, dict))]
        if not level:
            return
    raise _too_deep()


def _is_unicode(text: str) -> bool:
    """Whether it encodes as UTF-8: a lone surrogate does not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _too_deep() -> ValueError:
    return ValueError(f"it is nested more than {MAX_LEVELS} levels deep")
