"""Parses a Spark SQL schema, such as ``id BIGINT, amount DECIMAL(12,2)``, to an Arrow schema.

Type names are those of the Spark SQL manual ("Data Types"). Spark itself is not needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from abs_core.errors import OptionError

_SIMPLE: dict[str, pa.DataType] = {
    **dict.fromkeys(("boolean", "bool"), pa.bool_()),
    **dict.fromkeys(("tinyint", "byte"), pa.int8()),
    **dict.fromkeys(("smallint", "short"), pa.int16()),
    **dict.fromkeys(("int", "integer"), pa.int32()),
    **dict.fromkeys(("bigint", "long"), pa.int64()),
    **dict.fromkeys(("float", "real"), pa.float32()),
    "double": pa.float64(),
    **dict.fromkeys(("string", "text", "varchar", "char"), pa.string()),
    "binary": pa.binary(),
    "date": pa.date32(),
    **dict.fromkeys(("timestamp", "timestamp_ltz"), pa.timestamp("us", "UTC")),
    "timestamp_ntz": pa.timestamp("us"),
    **dict.fromkeys(("decimal", "dec", "numeric"), pa.decimal128(10, 0)),
}
_TOKEN = re.compile(r"""\s*(`(?:[^`]|``)+`|\w+|[<>(),:]|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
_MAX_DEPTH = 50
_REMEDY = (
    "write names and types as for Spark, such as: id BIGINT, amount DECIMAL(12,2), at TIMESTAMP, "
    "tags ARRAY<STRING>, place STRUCT<lat: DOUBLE, lon: DOUBLE>."
)


def schema_of(text: str) -> pa.Schema:
    """The schema in a file (Parquet, or text with DDL), or in DDL text; raises OptionError."""
    path = Path(text)
    if "\n" in text or not path.suffix or " " in path.suffix:
        return from_ddl(text)
    try:
        if path.suffix == ".parquet":
            return pq.read_schema(path)
        return from_ddl(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise OptionError(
            f"The schema cannot be read from {path}: {error}",
            remedy=f"name a Parquet file or a file with DDL, or {_REMEDY}",
        ) from error


def from_ddl(text: str) -> pa.Schema:
    """The schema that Spark makes of this text; raises OptionError with the position of an error."""
    fields = _Parser(text).fields(end=None)
    names = [field.name for field in fields]
    if not fields or len(set(names)) != len(names):
        raise OptionError("The schema has no column, or one twice.", remedy=_REMEDY)
    return pa.schema(fields)


class _Parser:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def fields(self, end: str | None) -> list[pa.Field]:
        """Parse ``name type, name: type ...`` up to ``end``, which is not taken."""
        columns: list[pa.Field] = []
        if self._peek() == end:
            return columns
        while not columns or self._skip(","):
            name = self._name()
            self._skip(":")
            kind = self._type()
            nullable = not self._skip("not")
            if not nullable:
                self._expect("null")
            if self._skip("comment") and not (self._next() or "").startswith(("'", '"')):
                raise self._error("a comment's text is missing")
            columns.append(pa.field(name, kind, nullable=nullable))
        if self._peek() != end:
            raise self._error("a comma is missing")
        return columns

    def _type(self) -> pa.DataType:
        word = (self._next() or "").lower()
        nested: dict[str, Callable[[], pa.DataType]] = {
            "array": lambda: pa.list_(self._type()),
            "map": self._map,
            "struct": lambda: pa.struct(self.fields(">")),
        }
        if word in nested:
            self._depth += 1
            if self._depth > _MAX_DEPTH:
                raise self._error("types are nested too deeply")
            self._expect("<")
            made = nested[word]()
            self._expect(">")
            self._depth -= 1
            return made
        if word not in _SIMPLE:
            raise self._error(f"{word!r} is not a type that the audit knows")
        numbers = self._numbers()
        if word in ("decimal", "dec", "numeric") and numbers:
            precision, scale = (*numbers, 0)[:2]
            if not (1 <= precision <= 38 and 0 <= scale <= precision):
                raise self._error(f"there is no DECIMAL({precision},{scale})")
            return pa.decimal128(precision, scale)
        return _SIMPLE[word]

    def _map(self) -> pa.DataType:
        key = self._type()
        self._expect(",")
        return pa.map_(key, self._type())

    def _numbers(self) -> list[int]:
        """The numbers in parentheses after a type."""
        numbers: list[int] = []
        if not self._skip("("):
            return numbers
        while not numbers or self._skip(","):
            token = self._next() or ""
            if not token.isdecimal() or len(token) > 5:
                raise self._error("a number is missing")
            numbers.append(int(token))
        self._expect(")")
        return numbers

    def _name(self) -> str:
        token = self._next() or ""
        if token.startswith("`"):
            return token[1:-1].replace("``", "`")
        if not re.fullmatch(r"\w+", token):
            raise self._error("a column's name is missing")
        return token

    def _peek(self) -> str | None:
        match = _TOKEN.match(self._text, self._at)
        if match:
            return match[1]
        if self._text[self._at :].strip():
            raise self._error("this is not understood")
        return None

    def _next(self) -> str | None:
        token = self._peek()
        if token is not None:
            self._at = self._text.index(token, self._at) + len(token)
        return token

    def _skip(self, word: str) -> bool:
        """Take the next token if it is this one."""
        if (self._peek() or "").lower() != word:
            return False
        self._next()
        return True

    def _expect(self, wanted: str) -> None:
        if not self._skip(wanted):
            raise self._error(f"{wanted.upper()!r} is missing")

    def _error(self, problem: str) -> OptionError:
        before = self._text[max(0, self._at - 20) : self._at]
        return OptionError(
            f"The schema is not DDL: {problem}, near {before!r} at character {self._at}.",
            remedy=_REMEDY,
        )
