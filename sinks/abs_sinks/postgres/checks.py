"""Checks, before sending, that PostgreSQL can hold a column's values.

Errors do not show values: they may be personal data.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from abs_clients.arrow import is_list
from abs_clients.buffers import values_of
from abs_sinks.postgres.types import PgType
from abs_sinks.refusals import Code, Reason, check_text, inside, parents_of, refuse

# src/include/datatype/timestamp.h, counted from 1970 as Arrow does. The upper end of timestamp
# (294277 AD) lies beyond what 64 bits of microseconds since 1970 can say.
MIN_TIMESTAMP_US = -210_866_803_200_000_000
"""4714-11-24 BC, the minimum of timestamp and timestamptz."""
MIN_DATE_DAYS, MAX_DATE_DAYS = -2_440_588, 2_145_042_905
"""4714-11-24 BC and 5874897-12-31."""
DAY_US = 86_400_000_000
MAX_INT64 = 2**63 - 1


def check_values(array: pa.Array, pg: PgType, column: str) -> None:
    """Refuse values that the column's type cannot hold exactly.

    Args:
        array: of the type that ``fit`` chose for this column.
        column: its name, for the message.

    Raises:
        BadValuesError: of the column's rows.
    """
    arrow = array.type
    outside = f"lie outside the range of {pg.label}"
    if pa.types.is_string(arrow):
        check_text(array, column)
        _check_length(array, pg, column)
    elif is_list(arrow) and pg.element is not None:
        inner = array.flatten()
        # All dimensions of an array are of one type: the elements' is that of the leaves.
        with inside(lambda: parents_of(array)):
            check_values(inner, pg if is_list(inner.type) else pg.element, column)
    elif pa.types.is_timestamp(arrow):
        before = f"lie before 4714-11-24 BC, the first moment that {pg.label} holds"
        _check_range(array, pa.int64(), MIN_TIMESTAMP_US, MAX_INT64, column, before)
        _check_fraction(array, pg, column)
    elif pa.types.is_date32(arrow):
        _check_range(array, pa.int32(), MIN_DATE_DAYS, MAX_DATE_DAYS, column, outside)
    elif pa.types.is_time64(arrow):
        _check_range(array, pa.int64(), 0, DAY_US, column, outside)
        _check_fraction(array, pg, column)
    elif pa.types.is_duration(arrow):
        _check_fraction(array, pg, column)


def _check_length(array: pa.Array, pg: PgType, column: str) -> None:
    """Check varchar(n) and char(n): the server would silently cut trailing blanks."""
    most = pg.max_chars
    if most is None or (pc.max(pc.binary_length(array)).as_py() or 0) <= most:
        return
    remedy = "cut them in Spark with left(), or make the column longer"
    reason = Reason(Code.TOO_LONG, column, f"are too long for {pg.label}", remedy)
    refuse(reason, pc.greater(pc.utf8_length(array), most))


def _check_range(
    array: pa.Array, ticks_type: pa.DataType, low: int, high: int, column: str, why: str
) -> None:
    # Values under a null can only cause the closer look.
    found = values_of(array, ticks_type.to_pandas_dtype())
    if found.size == 0 or (low <= found.min() and found.max() <= high):
        return
    ticks = array.view(ticks_type)
    outside = pc.or_(pc.less(ticks, low), pc.greater(ticks, high))
    refuse(Reason(Code.OUT_OF_RANGE, column, why, "correct or filter them in Spark"), outside)


def _check_fraction(array: pa.Array, pg: PgType, column: str) -> None:
    """Check timestamp(p) and its like: the server would silently round."""
    unit = 10 ** (6 - pg.fraction_digits)
    if unit == 1:
        return
    ticks = array.view(pa.int64())
    rest = pc.subtract(ticks, pc.multiply(pc.divide(ticks, unit), unit))
    why = f"have more digits of a second than {pg.label} keeps"
    remedy = "truncate them in Spark with date_trunc(), or make the column more precise"
    refuse(Reason(Code.TOO_PRECISE, column, why, remedy), pc.not_equal(rest, 0))
