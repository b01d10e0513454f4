"""Numbers and times as text: taken if, and only if, PostgreSQL stores exactly what the text says."""

from __future__ import annotations

from itertools import product

import psycopg
import pyarrow as pa
import pytest
from psycopg import Connection

from abs_sinks.postgres.columns import checks
from abs_sinks.postgres.columns.types import PgType
from abs_sinks.refusals import BadValuesError
from tests.planted import planted

pytestmark = pytest.mark.services

SIZES = [(10, 2), (5, 0), (3, 5), (5, -2), (38, 0), (60, 30)]
NUMERALS = [
    *(
        "0",
        "-0",
        "0.00",
        "1.5",
        "1.50",
        "1.500",
        "1.505",
        "-99999.99",
        "100",
        "12300",
        "150",
        "99950",
    ),
    *("00012.30", "0.00999", "0.01", "0.000001", "9999999", "99999999.99", "100000000", "12345678"),
    *("9" * 38, "1" + "0" * 38, "9" * 30 + "." + "9" * 30, "9" * 31, "0." + "0" * 29 + "1", "NaN"),
]
WRITTEN_OTHERWISE = ["1e3", " 1", "1 ", "1_000", "0x10", ".5", "5.", "+1", "nan", "", "٣", "1\n"]
"""What the server may read, but not in the one form that is taken."""


def is_taken(text: str, pg: PgType) -> bool:
    try:
        checks.check_values(pa.array([text]), pg, "v")
    except BadValuesError:
        return False
    return True


def is_stored(db: Connection[tuple[bool]], text: str, kind: str, plain: str) -> bool:
    """Whether the server stores the text's value in a column of this type, and nothing else."""
    query = f"select %s::{plain} = %s::{plain}::{kind}"
    try:
        return db.execute(query, (text, text)).fetchone() == (True,)
    except psycopg.Error:
        return False


def sized(precision: int, scale: int) -> PgType:
    typmod = (precision << 16 | scale & 0x7FF) + 4
    return PgType(0, "numeric", f"numeric({precision},{scale})", typmod, category="N")


def numerals_differ(database: str) -> list[str]:
    """Numerals of which taken and stored are not the same."""
    with psycopg.connect(database, autocommit=True) as db:
        found = [
            f"{text} {size}"
            for text, size in product(NUMERALS, SIZES)
            if is_taken(text, sized(*size))
            != is_stored(db, text, f"numeric({size[0]},{size[1]})", "numeric")
        ]
    return found + [text for text in WRITTEN_OTHERWISE if is_taken(text, sized(10, 2))]


def test_a_numeral_is_taken_if_the_column_stores_it_exactly(database: str) -> None:
    assert numerals_differ(database) == []


@pytest.mark.parametrize(
    ("name", "bug"),
    [("_NUMERAL", r"^\s*-?[0-9]+(\.[0-9]+)?"), ("_check_numeral", lambda *_: None)],
)
def test_a_planted_bug_of_the_numerals_check_is_found(
    database: str, name: str, bug: object
) -> None:
    with planted((checks, name, bug)):
        assert numerals_differ(database) == []


STAMP = PgType(0, "timestamp", "timestamp", category="D")
TIMES = {
    "2026-01-02 03:04:05.678901": STAMP,
    "0044-03-15 12:00:00.5 BC": STAMP,
    "294276-12-31 23:59:59.999999": STAMP,
    "-infinity": STAMP,
    "2026-01-02 03:04:05+00": PgType(0, "timestamptz", "timestamptz", category="D"),
    "4714-11-24 BC": PgType(0, "date", "date", category="D"),
    "infinity": PgType(0, "date", "date", category="D"),
    "24:00:00": PgType(0, "time", "time", category="D"),
}


@pytest.mark.parametrize("text", TIMES)
def test_a_time_in_the_one_form_is_taken(text: str) -> None:
    assert is_taken(text, TIMES[text])


@pytest.mark.parametrize(
    "text",
    ["now", "today", "01/02/2026", "2026-01-02 03:04:05+02", "2026-01-02 03:04:05.6789012", "x",
     "2026-01-02 03:04:05 AD", "tomorrow", "epoch", "2026-01-02 03:04:05 UTC", "allballs", ""],
)  # fmt: skip
def test_a_time_that_a_setting_or_the_clock_reads_is_refused(text: str) -> None:
    assert not is_taken(text, STAMP)


def test_digits_that_a_time_of_milliseconds_would_round_are_refused() -> None:
    coarse = PgType(0, "timestamp", "timestamp(3)", typmod=3, category="D")
    assert is_taken("2026-01-02 03:04:05.678", coarse)
    assert not is_taken("2026-01-02 03:04:05.678901", coarse)
