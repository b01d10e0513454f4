"""Two texts that say different numbers are stored as different values, whatever the column's type.

A type's own text input may round, cut, or wrap around what it reads. Pairs of texts that differ in one
digit show it for any type, without a rule of what each type does.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from contextlib import suppress

import psycopg
import pyarrow as pa
import pytest

from abs_core.contracts import Task
from abs_core.errors import DataError, RefusedError, SchemaError
from abs_core.model import Outcome
from abs_sinks.postgres import PostgresOptions, PostgresSink
from abs_sinks.postgres.columns import checks
from tests import sample

pytestmark = [pytest.mark.services, pytest.mark.timeout(1800)]

Chosen = random.Random
SAMPLED, CAMPAIGN = 3, 50
"""Pairs of each type."""


def digits(chosen: Chosen, most: int) -> str:
    return "".join(chosen.choice("0123456789") for _ in range(chosen.randint(1, most)))


def number(chosen: Chosen) -> str:
    # Not zero: then no exponent would make another number.
    whole = chosen.choice(["", "-"]) + (digits(chosen, 12).lstrip("0") or "7")
    return whole + chosen.choice(["", f".{digits(chosen, 20)}", f"e{chosen.randint(-9, 9)}"])


def day(chosen: Chosen) -> str:
    return f"{chosen.randint(1900, 2100)}-{chosen.randint(1, 12):02}-{chosen.randint(1, 28):02}"


def clock(chosen: Chosen) -> str:
    fraction = chosen.choice(["", f".{digits(chosen, 9)}"])
    return f"{chosen.randint(0, 22):02}:{chosen.randint(0, 58):02}:{chosen.randint(0, 58):02}{fraction}"


def zone(chosen: Chosen) -> str:
    return chosen.choice(["+00", "+02", "-05:30", "+01:02:03", "Z", " UTC", ""])


def moment(chosen: Chosen) -> str:
    return f"{day(chosen)}{chosen.choice(' T')}{clock(chosen)}"


def interval(chosen: Chosen) -> str:
    units = ("years", "mons", "days", "hours", "mins", "secs", "ms", "us", "weeks", "centuries")
    some = [f"{number(chosen)} {chosen.choice(units)}" for _ in range(chosen.randint(1, 3))]
    return chosen.choice(
        [" ".join(some), f"P{digits(chosen, 3)}DT{number(chosen)}S", clock(chosen)]
    )


def between(of: Callable[[Chosen], str]) -> Callable[[Chosen], str]:
    return lambda chosen: f"[{of(chosen)},{of(chosen)}]"


def bits(chosen: Chosen) -> str:
    return "".join(chosen.choice("01") for _ in range(chosen.randint(1, 12)))


def address(chosen: Chosen) -> str:
    parts = ".".join(str(chosen.randint(0, 255)) for _ in range(4))
    return parts + chosen.choice(["", "/8", "/24", "/32"])


def words(chosen: Chosen) -> str:
    return " ".join(digits(chosen, 4) for _ in range(chosen.randint(1, 4))) + chosen.choice(
        ["", " "]
    )


TYPES: dict[str, Callable[[Chosen], str]] = {
    **{f"numeric{size}": number for size in ("", "(5,2)", "(20,10)", "(4,-2)")},
    **dict.fromkeys(("money", "oid", "xid", "cid", "xid8", "jsonb", "json"), number),
    **{f"time({n})": clock for n in (0, 3, 6)},
    **{f"timetz({n})": (lambda c: clock(c) + zone(c)) for n in (0, 3, 6)},
    **{f"timestamp({n})": moment for n in (0, 3, 6)},
    **{f"timestamptz({n})": (lambda c: moment(c) + zone(c)) for n in (0, 3, 6)},
    **{f"interval{n}": interval for n in ("", "(0)", "(3)", " day", " hour to second(2)")},
    "date": day,
    **{name: between(number) for name in ("numrange", "int4range", "int8range", "own_range")},
    **{name: between(moment) for name in ("tsrange", "tstzrange")},
    "daterange": between(day),
    "nummultirange": lambda c: f"{{{between(number)(c)}}}",
    "point": lambda c: f"({number(c)},{number(c)})",
    "box": lambda c: f"({number(c)},{number(c)}),({number(c)},{number(c)})",
    "circle": lambda c: f"<({number(c)},{number(c)}),{number(c)}>",
    **dict.fromkeys(("bit(8)", "bit varying(8)", "bit varying"), bits),
    **dict.fromkeys(("inet", "cidr"), address),
    "macaddr": lambda c: ":".join(f"{c.randint(0, 255):02x}" for _ in range(6)),
    "pg_lsn": lambda c: f"{c.randint(0, 99)}/{digits(c, 8)}",
    "tid": lambda c: f"({c.randint(0, 99)},{c.randint(0, 70000)})",
    **dict.fromkeys(("name", '"char"', "varchar(6)", "char(6)", "text", "tsvector", "xml"), words),
    **dict.fromkeys(("own_coarse", "own_pair"), number),
    "own_clock": clock,
}


def other(chosen: Chosen, text: str) -> str:
    """The text with one digit that is another one, or one more at its end."""
    places = [n for n, sign in enumerate(text) if sign.isdigit()]
    at = chosen.choice(places)
    if chosen.random() < 0.4 and "." in text[:at]:
        return f"{text[: at + 1]}{chosen.choice('123456789')}{text[at + 1 :]}"
    digit = chosen.choice([d for d in "0123456789" if d != text[at]])
    return f"{text[:at]}{digit}{text[at + 1 :]}"


def stored(url: str, table: str, text: str) -> str | None:
    """What the table has of the text in a row of its own; None: it was refused."""
    options = PostgresOptions.parse({"url": url, "dbtable": table, "protocol": "2pc"})
    batch = pa.record_batch({"v": pa.array([text])})
    sink = PostgresSink(options, batch.schema)
    try:
        task = Task(secrets.token_hex(8), "job", 1, 0, 0, "ab")
        writer = sink.writer(task)
        try:
            writer.write(batch)
            made = writer.pre_commit()
        except (DataError, SchemaError, RefusedError):
            writer.abort()
            return None
        assert made is not None
        assert set(sink.committer().commit([made]).values()) == {Outcome.COMMITTED}
    finally:
        sink.close()
    with psycopg.connect(url, autocommit=True) as db:
        [row] = db.execute(f"delete from {table} returning v::text".encode()).fetchall()
    return str(row[0])


def taken_alike(url: str, kind: str, pairs: int) -> list[str]:
    """Pairs of texts of a type of which the table keeps one value."""
    chosen = random.Random(f"{sample.seed()} {kind}")
    table = f"texts_{secrets.token_hex(4)}"
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("set client_min_messages = warning")
        for statement in (
            "create type own_range as range (subtype = numeric)",
            "create domain own_coarse as numeric(6,1)",
            "create domain own_clock as time(1)",
            "create type own_pair as (a numeric(5,2))",
        ):
            with suppress(psycopg.errors.DuplicateObject):
                db.execute(statement)
        db.execute(f"create table {table} (v {kind})".encode())
    alike = []
    for _ in range(pairs):
        text = TYPES[kind](chosen)
        if not any(sign.isdigit() for sign in text):
            continue
        another = other(chosen, text)
        first = stored(url, table, text)
        if first is not None and first == stored(url, table, another):
            alike.append(f"{text!r} and {another!r} are {first}")
    return alike


@sample.cases(4)
@pytest.mark.parametrize("kind", TYPES)
def test_texts_of_different_numbers_are_different_values(shared_database: str, kind: str) -> None:
    assert taken_alike(shared_database, kind, SAMPLED) == []


@pytest.mark.campaign
@pytest.mark.parametrize("kind", TYPES)
def test_many_texts_of_different_numbers_are_different_values(
    shared_database: str, kind: str
) -> None:
    assert taken_alike(shared_database, kind, CAMPAIGN) == []


@pytest.mark.campaign
def test_a_type_whose_texts_nobody_checks_is_found(
    shared_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: a second's digits are not counted."""
    monkeypatch.setattr(checks, "_ISO", {})
    assert taken_alike(shared_database, "timetz(0)", CAMPAIGN)
