"""The columns that are filled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import types as T  # noqa: N812 - as Spark users call it

from abs_spark.cdc.decode import Kind
from abs_spark.cdc.misread import MisreadError

SECOND_DIGITS = 6

LEAVE_OUT = "leave the column out: name it in ignore"
LOST = {
    "timetz": "is a time of day with its zone, and Debezium sends it in UTC",
    "varbit": "is bits of any number, and Debezium does not send how many there are",
}
"""Types whose values Debezium does not send whole."""


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column that is filled, or what an array in it has.

    Args:
        spark: the type of the values made.
        pg: the type's name in the target table (``int4``, ``public.hstore``); empty: not known.
        digits: of a second, that the target's type keeps.
        items: of an array.
        enum: whether the target's type is an enum.
    """

    name: str
    spark: T.DataType
    pg: str = ""
    digits: int = SECOND_DIGITS
    items: TargetColumn | None = None
    enum: bool = False

    @property
    def shown(self) -> str:
        """For messages."""
        return self.pg or str(self.spark.simpleString())


TEXTS = frozenset({"text", "varchar", "bpchar"})
"""Types that take every text."""
SENT_AS_TEXT = TEXTS | {
    *("name", "char", "json", "jsonb", "xml", "uuid", "inet", "cidr", "macaddr", "macaddr8"),
    *("int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange", "tsvector"),
}
"""Types whose texts Debezium sends as they are; citext, ltree and enums are such, too."""
_OF_EXTENSIONS = ("citext", "ltree", "isbn")


def bare(pg: str) -> str:
    """A type's name without its schema."""
    return pg.rpartition(".")[2]


def sent_as_text(target: TargetColumn) -> bool:
    """Whether Debezium has a text for the target's type of its own."""
    return target.pg in SENT_AS_TEXT or target.enum or bare(target.pg) in _OF_EXTENSIONS


TEXT_KINDS: Mapping[str, frozenset[Kind]] = {
    "numeric": frozenset({Kind.NUMERIC, Kind.INTEGER, Kind.TEXT}),
    "money": frozenset({Kind.NUMERIC, Kind.TEXT}),
    "date": frozenset({Kind.DATE}),
    "time": frozenset({Kind.TIME}),
    "timestamp": frozenset({Kind.TIMESTAMP}),
    "timestamptz": frozenset({Kind.TIMESTAMPTZ}),
    "interval": frozenset({Kind.INTERVAL, Kind.DURATION}),
    "bit": frozenset({Kind.BITS, Kind.BOOLEAN}),
    "point": frozenset({Kind.POINT}),
    "oid": frozenset({Kind.INTEGER}),
}
"""What fits a type of PostgreSQL that is filled by its text."""


def opaque(target: TargetColumn) -> bool:
    """Whether Debezium does not know the target's type, and sends its text as bytes, if at all."""
    if not target.pg or target.pg in TEXT_KINDS or target.pg in LOST or sent_as_text(target):
        return False
    spark = isinstance(target.spark, T.StringType)
    return spark and bare(target.pg) not in ("hstore", "geometry", "geography")


def wants_bytes(target: TargetColumn) -> bool:
    """Whether the target's values are bytes at Debezium: binary ones, and types it does not know."""
    if isinstance(target.spark, T.BinaryType):
        return True
    return opaque(target)


def misfit(kind: Kind, target: TargetColumn) -> MisreadError:
    """A value of a kind has no place in the target."""
    remedy = "give the target's column the source's type"
    if kind in (Kind.DOUBLE, Kind.REAL):
        remedy = (
            "if the source's column is a numeric, Debezium rounds it: set decimal.handling.mode to "
            "precise or string; else make the target's column double precision"
        )
    return MisreadError(f"is sent as {kind.value}, and is {target.shown} in the target", remedy)
