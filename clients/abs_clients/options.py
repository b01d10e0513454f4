"""Parses engines' options (text to text) into typed values.

Names are case-insensitive: Spark lower-cases them. All problems of a job's options are reported in
one error. Messages name options and never show the value of a secret one (I9).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from inspect import get_annotations
from textwrap import fill
from typing import Any, TypeVar, get_type_hints

from abs_core.errors import OptionError
from abs_core.strictjson import decimal

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a sink or source.

    Args:
        name: as documented.
        read: parses the text; a ValueError's message completes "must be ...".
        default: if the option is not given.
        secret: never show its value.
        doc: what it is for, in Markdown with links from ``docs/reference``.
    """

    name: str
    read: Callable[[str], Any]
    default: Any = None
    secret: bool = False
    doc: str = ""


def options_of(values: type) -> tuple[Option, ...]:
    """The options in a frozen dataclass's annotated fields.

    ``Annotated[T, read, doc]`` is an option with the field's name and default, ``Annotated[T,
    Option(...), doc]`` one with another name or default. Inherited ones come last.
    """
    return tuple(_by_field(values).values())


def needed(values: type) -> list[Option]:
    """Those that must be given: neither they nor their fields have a default."""
    default = {field.name: (field.default, field.default_factory) for field in fields(values)}
    return [
        option
        for name, option in _by_field(values).items()
        if option.default is None and default[name] == (MISSING, MISSING)
    ]


def fields_from(values: type, parsed: Mapping[str, Any]) -> dict[str, Any]:
    """The dataclass's option fields, from the result of ``read_options``."""
    return {name: parsed[option.name] for name, option in _by_field(values).items()}


@cache
def _by_field(values: Any) -> dict[str, Option]:
    hints = get_type_hints(values, include_extras=True)
    order = [name for kind in values.__mro__ for name in vars(kind).get("__annotations__", ())]
    options = {}
    for field in sorted(fields(values), key=lambda field: order.index(field.name)):
        how, *doc = getattr(hints[field.name], "__metadata__", (None,))
        if how is not None:
            default = None if field.default is MISSING else field.default
            option = how if isinstance(how, Option) else Option(field.name, how, default)
            options[field.name] = replace(option, doc="".join(doc) or option.doc)
    return options


Values = TypeVar("Values")


def described(values: type[Values]) -> type[Values]:
    """Decorates a frozen dataclass: its docstring names its options, each with its text."""
    kind_of: Any = values
    inherited = {name for kind in values.__mro__[1:-1] for name in get_annotations(kind)}
    lines = [
        _indented(f"{name}: {_LINK.sub(_TEXT_OF_LINK, option.doc)}.")
        for name, option in _by_field(kind_of).items()
        if option.doc and name not in inherited - get_annotations(values).keys()
    ]
    doc = (values.__doc__ or "").rstrip()
    head = "" if "\n    Args:\n" in doc else "\n\n    Args:"
    values.__doc__ = "\n".join([f"{doc}{head}", *lines, "    "])
    return values


_LINK, _TEXT_OF_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)"), r"\1"


def _indented(line: str) -> str:
    return fill(line, 100, initial_indent=" " * 8, subsequent_indent=" " * 12)


class Problems:
    """Collects the problems of a job's options for one report.

    ``format`` is the sink's or source's name, for the message.
    """

    def __init__(self, format: str) -> None:  # noqa: A002 - as Spark users call it
        self._format = format
        self._found: list[tuple[str, str]] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, problem: str, remedy: str) -> None:
        """Note one problem: a sentence, and its remedy."""
        self._found.append((problem, remedy))

    def attempt(self, call: Callable[[], T]) -> T | None:
        """The result of ``call``; None if it raised an OptionError, which is noted."""
        try:
            return call()
        except OptionError as error:
            self.add(error.what, error.remedy)
            return None

    def raise_any(self) -> None:
        """Raise one OptionError with every problem and remedy, if any."""
        if len(self._found) == 1:
            sentence, remedy = self._found[0]
            raise OptionError(f"{self._format}: {sentence}", remedy=remedy)
        if self._found:
            listed = [
                f"({number}) {problem} [{remedy}]"
                for number, (problem, remedy) in enumerate(self._found, 1)
            ]
            raise OptionError(
                f"{self._format}: {len(listed)} options are wrong: {' '.join(listed)}",
                remedy="correct each of them, as its brackets say.",
            )


def read_options(
    options: Mapping[str, str],
    declared: Sequence[Option],
    problems: Problems,
    *,
    elsewhere: Mapping[str, str] | None = None,
    prefix: str | None = None,
) -> dict[str, Any]:
    """Parse every known option; note those that are unknown, malformed or given twice.

    Args:
        elsewhere: names from other connectors, each with the remedy.
        prefix: options with it are another system's, and skipped.

    Returns:
        a value for each option in ``declared``, by its documented name.
    """
    by_name = {option.name.lower(): option for option in declared}
    values = {option.name: option.default for option in declared}
    instead = {name.lower(): (name, hint) for name, hint in (elsewhere or {}).items()}
    seen: dict[str, str] = {}
    for name, text in options.items():
        key = name.lower()
        if prefix is not None and key.startswith(prefix):
            continue
        if not is_text(name, str(text), problems):
            continue
        if key in seen and seen[key] != text:
            problems.add(f"The option {name} is given twice, with different values.", GIVE_ONCE)
        seen[key] = text
        if key in by_name:
            option = by_name[key]
            _read_one(option, text, values, problems)
        elif key in instead:
            documented, remedy = instead[key]
            problems.add(f"The option {documented} is not one of ours.", remedy)
        else:
            problems.add(f"There is no option {name}.", _nearest(key, by_name))
    return values


def _read_one(option: Option, text: str, values: dict[str, Any], problems: Problems) -> None:
    try:
        values[option.name] = option.read(str(text))
    except OptionError as error:
        problems.add(error.what, error.remedy)
    except ValueError as error:
        shown = "" if option.secret else f", not {text[:200]!r}"
        remedy = "correct it."
        if isinstance(option.default, (bool, int, float, str)):
            remedy = f"correct it, or leave it out: it is {str(option.default).lower()} then."
        problems.add(f"The option {option.name} must be {error}{shown}.", remedy)


GIVE_ONCE = "give it once; names differ by more than the case of their letters."


def is_text(name: str, value: str, problems: Problems) -> bool:
    """Whether an option's name and value are valid text; notes the problem.

    A lone surrogate has no UTF-8, and a zero byte ends a text in C libraries.
    """
    for part in (name, value):
        try:
            part.encode()
        except UnicodeEncodeError:
            problems.add(
                f"The option {name!a} is not valid Unicode text: it contains an unpaired "
                "surrogate.",
                "write it as UTF-8: bytes of another encoding were read as text.",
            )
            return False
        if "\0" in part:
            problems.add(f"The option {name!a} contains a zero byte.", "remove the zero byte.")
            return False
    return True


def _nearest(key: str, by_name: Mapping[str, Option]) -> str:
    near = difflib.get_close_matches(key, by_name, n=3, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(by_name[name].name for name in near)}?"
    return f"known are: {', '.join(sorted(option.name for option in by_name.values()))}."


def text(value: str) -> str:
    """Any text but the empty one."""
    if not value.strip():
        raise ValueError("a text that is not empty")
    return value


def one_of(*choices: str) -> Callable[[str], str]:
    """One of these words, in any case."""

    def read(text: str) -> str:
        if text.strip().lower() not in choices:
            near = difflib.get_close_matches(text.strip().lower(), choices, n=1)
            raise ValueError(
                f"one of {', '.join(choices)}{f' (did you mean {near[0]}?)' if near else ''}"
            )
        return text.strip().lower()

    return read


def boolean(text: str) -> bool:
    """true or false, as Spark writes them."""
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.strip().lower() not in words:
        raise ValueError("true or false")
    return words[text.strip().lower()]


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """A whole number in an inclusive range."""

    def read(text: str) -> int:
        try:
            return decimal(text.strip(), least, most)
        except ValueError as error:
            raise ValueError(f"a whole number from {least} to {most}") from error

    return read


_SIZE = re.compile(r"([0-9]{1,19})\s*(?:([kmgt]?)(?:i?b)?)?")
_SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def size(least: int, most: int) -> Callable[[str], int]:
    """A number of bytes, as ``134217728``, ``128m`` or ``128MiB`` (powers of 1024, as Spark's)."""

    def read(text: str) -> int:
        match = _SIZE.fullmatch(text.strip().lower())
        value = int(match[1]) * _SIZE_UNITS[match[2] or ""] if match else -1
        if not least <= value <= most:
            raise ValueError(f"a size from {least} to {most} bytes, for instance 128m")
        return value

    return read


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)?")
_DURATION_UNITS = {
    "": 1.0,
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86_400.0,
}


def duration(least: float, most: float) -> Callable[[str], float]:
    """A time in seconds in an inclusive range; ``90``, ``90s``, ``3m`` or ``1h``."""

    def read(text: str) -> float:
        match = _DURATION.fullmatch(text.strip().lower())
        value = float(match[1]) * _DURATION_UNITS[match[2] or ""] if match else -1.0
        if not least <= value <= most:
            raise ValueError(f"a time from {least:g}s to {most:g}s, such as 90s, 3m or 1h")
        return value

    return read


def share(text: str) -> float:
    """A share of a whole; ``0.01`` or ``1%``."""
    number = text.strip()
    try:
        value = float(number[:-1]) / 100 if number.endswith("%") else float(number)
    except ValueError:
        value = float("nan")
    if not 0 <= value <= 1:
        raise ValueError("a share from 0 to 1, such as 0.01 or 1%")
    return value


def seconds(least: float, most: float) -> Callable[[str], float]:
    """A number of seconds in an inclusive range; ``10`` or ``10s``."""

    def read(text: str) -> float:
        try:
            value = float(text.strip().removesuffix("s"))
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise ValueError(f"a number of seconds from {least:g} to {most:g}")
        return value

    return read
