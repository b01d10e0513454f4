"""Names of tables and columns, as users write them and as the server quotes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from abs_core.errors import OptionError

MAX_IDENTIFIER_BYTES = 63
"""PostgreSQL cuts longer identifiers off in silence (manual, 4.1.1); here they are refused."""

# A quoted part with "" for a quote in it, or an unquoted one that needs no quotes.
_PART = r'\s*(?:"((?:[^"]|"")+)"|([A-Za-z_\u0080-\U0010ffff][\w$\u0080-\U0010ffff]*))\s*'
_NAME = rf"{_PART}(?:\.{_PART})*"
"""Texts, as to compile them takes 13 ms: a task does not parse names."""
_UPPER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


@dataclass(frozen=True, slots=True)
class TableName:
    """A table's bare name as in the catalog; without a schema, the search_path decides."""

    name: str
    schema: str | None = None

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Parse ``table``, ``schema.table`` or quoted parts such as ``"My Schema"."Ta""ble"``.

        As in SQL, a part without quotes is folded to lower case (ASCII letters only). Raises
        OptionError for other text, more than two parts, or a part over 63 bytes.
        """
        if not re.fullmatch(_NAME, text):
            raise OptionError(f"{text!r} is not a table name.", remedy=_HOW_TO_WRITE)
        parts = [
            quoted.replace('""', '"') if quoted else plain.translate(_UPPER)
            for quoted, plain in re.findall(_PART, text)
        ]
        if len(parts) > 2:
            raise OptionError(
                f"{text!r} has {len(parts)} parts.",
                remedy="give schema.table; the database is named in the option url.",
            )
        for name in parts:
            check_identifier(name)
        return cls(parts[-1], parts[0] if len(parts) == 2 else None)

    @property
    def identifier(self) -> sql.Identifier:
        """The name, for a statement."""
        return sql.Identifier(*([self.schema] if self.schema else []), self.name)

    def __str__(self) -> str:
        return self.identifier.as_string()


def columns_of(names: Sequence[str]) -> sql.Composed:
    """The names of columns, for a statement."""
    return sql.SQL(", ").join(map(sql.Identifier, names))


_HOW_TO_WRITE = (
    "write schema.table; a part with upper case, spaces or other characters goes in double quotes "
    '("My Schema"."My Table").'
)


def check_identifier(name: str) -> None:
    """Raise OptionError for a name that is empty, over 63 bytes, or contains a NUL."""
    size = len(name.encode("utf-8", "surrogatepass"))
    if not name or "\0" in name or size > MAX_IDENTIFIER_BYTES:
        raise OptionError(
            f"{name!r} cannot be a PostgreSQL identifier ({size} bytes).",
            remedy=f"take 1 to {MAX_IDENTIFIER_BYTES} bytes in UTF-8, without NUL.",
        )
