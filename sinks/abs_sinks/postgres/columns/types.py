"""PostgreSQL's types, as the wire format needs them, from the catalog."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

TEXT_RECEIVERS = frozenset({"textrecv", "varcharrecv", "bpcharrecv", "json_recv", "enum_recv"})
"""Receive functions that take plain text in a binary COPY; citext and enums use them.

``xml_recv`` is left out: it follows an encoding that the document declares.
"""

ARRAY_MAX_DIMENSIONS = 6
"""MAXDIM in src/include/utils/array.h."""


@dataclass(frozen=True, slots=True)
class PgType:
    """A type of a column or of an array's elements; a domain is resolved to its base type.

    Args:
        oid: the declared type's oid (a domain's own): an array on the wire names its elements so.
        name: the base type: its bare name in pg_catalog (``int4``), else ``schema.name``.
        label: as people and ``format_type`` write it, with its modifier: ``numeric(10,2)``.
        typmod: the modifier (length, precision) as the catalog has it; -1: none.
        receive: name of the internal function that reads the binary form; empty if it is not one.
        element: the type of the elements, for an array.
        category: pg_type's typcategory of the base type: ``N`` for numbers.
        size: pg_type's typlen of the base type: bytes of each value; negative: varies.
        bounds: of a range or multirange, the type of its bounds.
        one_byte: each byte is one character there: the database's encoding is SQL_ASCII.
        domain_of: of a domain, the base type's label; else empty.
    """

    oid: int
    name: str
    label: str
    typmod: int = -1
    receive: str = ""
    element: PgType | None = None
    category: str = ""
    size: int = -1
    bounds: PgType | None = None
    one_byte: bool = False
    domain_of: str = ""

    @property
    def takes_text(self) -> bool:
        """Whether the binary form of a value is its text."""
        return self.receive in TEXT_RECEIVERS

    @property
    def max_chars(self) -> int | None:
        """Length limit of varchar(n) and char(n), in the server's characters."""
        if self.name in ("varchar", "bpchar") and self.typmod >= 0:
            return self.typmod - 4
        return None

    @property
    def numeric_size(self) -> tuple[int, int] | None:
        """Precision and scale of numeric(p, s), in digits; the scale can be negative (numeric.c)."""
        if self.name != "numeric" or self.typmod < 0:
            return None
        packed = self.typmod - 4
        return packed >> 16 & 0xFFFF, ((packed & 0x7FF) ^ 1024) - 1024

    @property
    def fraction_digits(self) -> int:
        """Digits of a second that a date/time type keeps: 0 to 6."""
        if self.typmod < 0:
            return 6
        if self.category == "T":
            # The low half is the precision, 0xFFFF if not given (timestamp.h, INTERVAL_PRECISION).
            precision = self.typmod & 0xFFFF
            return 6 if precision == 0xFFFF else precision
        return self.typmod

    @property
    def interval_fields(self) -> int:
        """Bit mask of the fields that interval keeps (timestamp.h, INTERVAL_RANGE)."""
        return 0x7FFF if self.typmod < 0 else self.typmod >> 16 & 0x7FFF


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table, as the catalog has it.

    Args:
        not_null: whether NULL is refused by the column itself.
        collation: its collation, as SQL writes it, where it is not the type's own (of a domain: the
            base type's); else empty.
        has_default: whether a default value is declared (of the column, not of its domain).
        identity: ``""``, ``"a"`` (GENERATED ALWAYS AS IDENTITY) or ``"d"`` (BY DEFAULT).
        generated: whether the column is computed from others, stored or virtual.
    """

    name: str
    type: PgType
    not_null: bool = False
    has_default: bool = False
    identity: str = ""
    generated: bool = False
    collation: str = ""

    @property
    def fills_itself(self) -> bool:
        """Whether the server fills the column for a row without a value."""
        return self.has_default or bool(self.identity) or self.generated


def becomes_json(plain: pa.DataType, pg: PgType) -> bool:
    """Whether values of this plain type are written as JSON into a column of that type."""
    return pg.name in ("json", "jsonb") and pa.types.is_nested(plain)
