"""Names of tables as people write them, and as the server quotes them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from psycopg import sql

from abs_core.errors import OptionError

MAX_IDENTIFIER_BYTES = 63
"""PostgreSQL cuts longer identifiers off in silence (manual, 4.1.1); here they are refused."""

# A quoted part with "" for a quote in it, or an unquoted one that needs no quotes.
_PART = re.compile(
    r'\s*(?:"((?:[^"]|"")+)"|([A-Za-z_\u0080-\U0010ffff][\w$\u0080-\U0010ffff]*))\s*'
)
_UPPER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


@dataclass(frozen=True, slots=True)
class TableName:
    """A table's name, with its schema or without (then the server's search_path decides).

    Args:
        name: the bare name, exactly as the catalog has it.
        schema: the bare name of the schema, or None.
    """

    name: str
    schema: str | None = None

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Read ``table``, ``schema.table`` or quoted parts such as ``"My Schema"."Ta""ble"``.

        As in SQL, a part without quotes is folded to lower case (ASCII letters only), and one with
        quotes is taken as it is.

        Raises:
            OptionError: not a name, more than two parts, or a part over 63 bytes.
        """
        parts, at = [], 0
        while True:
            part = _PART.match(text, at)
            if part is None:
                raise OptionError(f"{text!r} is not a table name.", remedy=_HOW_TO_WRITE)
            quoted, plain = part.groups()
            parts.append(quoted.replace('""', '"') if quoted else plain.translate(_UPPER))
            at = part.end()
            if at == len(text):
                break
            if text[at] != ".":
                raise OptionError(f"{text!r} is not a table name.", remedy=_HOW_TO_WRITE)
            at += 1
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
        """The name, to be composed into a statement."""
        return sql.Identifier(*([self.schema] if self.schema else []), self.name)

    def __str__(self) -> str:
        return self.identifier.as_string()


_HOW_TO_WRITE = (
    "write schema.table; a part with upper case, spaces or other characters goes in double quotes "
    '("My Schema"."My Table").'
)


def check_identifier(name: str) -> None:
    """Refuse a name that PostgreSQL would cut off, or cannot hold.

    Raises:
        OptionError: the name is empty, longer than 63 bytes, or holds a NUL.
    """
    size = len(name.encode("utf-8", "surrogatepass"))
    if not name or "\0" in name or size > MAX_IDENTIFIER_BYTES:
        raise OptionError(
            f"{name!r} cannot be a PostgreSQL identifier ({size} bytes).",
            remedy=f"take 1 to {MAX_IDENTIFIER_BYTES} bytes in UTF-8, without NUL.",
        )
