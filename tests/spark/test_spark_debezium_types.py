"""Every type of PostgreSQL, as Debezium's own engine sends it, ends as in the source or is refused.

The feeds were recorded by ``tests.kit.debezium.feeds`` (see there for a new recording); the verdicts
beside them are what the page shows.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from abs_services.native.postgres import NativePostgres
from abs_spark.cdc import convert, decode, placeholders
from tests.kit.debezium import feeds
from tests.kit.debezium.copying import (
    ENCODINGS,
    EQUAL,
    LOST,
    REFUSED,
    WRONG,
    BySpark,
    InProcess,
    Verdict,
    compared,
    copy,
)
from tests.kit.debezium.feeds import CASES, Feed, prepare, read
from tests.kit.debezium.kinds import SETTINGS
from tests.kit.debezium.page import PAGE, page
from tests.kit.debezium.scenarios import INCREMENTAL
from tests.kit.debezium.verdicts import ANY, OTHERS, feeds_of, found, kept, tells
from tests.planted import planted
from tests.sample import cut

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.timeout(900)]

ALL = {case.name: case for case in (*CASES, INCREMENTAL)}
BY_SPARK = (("all", "0", "with schema"), ("all", "0", "without schema"), ("all", "1", "avro"))
"""A table with each type that must be exact, as a user copies it."""
SAMPLE = 30
"""So many feeds in ``make test``, in one encoding each; all others are the campaign's."""


@pytest.fixture(scope="module")
def target(shared_database: str) -> Iterator[tuple[str, frozenset[str]]]:
    """A database with the types that tables use, and its extensions."""
    with psycopg.connect(shared_database, autocommit=True) as db:
        yield shared_database, prepare(db)


def feed_of(name: str, value: str) -> Feed:
    return next(feed for feed in feeds_of(name) if (feed.value or ANY) == value)


@pytest.mark.parametrize(("name", "value", "encoding"), BY_SPARK)
def test_a_table_of_all_types_ends_as_the_source(
    spark: SparkSession, target: tuple[str, frozenset[str]], name: str, value: str, encoding: str
) -> None:
    verdict = copy(BySpark(spark), target[0], feed_of(name, value), encoding)
    assert verdict.how == EQUAL, verdict.why


def test_a_sample_of_the_feeds_ends_as_the_page_says(target: tuple[str, frozenset[str]]) -> None:
    url, extensions = target
    there = [feed for feed in read() if feed.case.needs is None or feed.case.needs in extensions]
    for number, feed in enumerate(cut(there, SAMPLE, "debezium's feeds")):
        encoding = ENCODINGS[number % len(ENCODINGS)]
        as_told(feed, encoding, copy(InProcess(), url, feed, encoding))


def as_told(feed: Feed, encoding: str, verdict: Verdict) -> None:
    told = kept()[feed.case.name][feed.value or ANY][encoding]
    where = f"{feed.case.name}, {feed.value}, {encoding}: {verdict.why}"
    assert (verdict.how, verdict.lost) == (told.how, told.lost), where


@pytest.mark.campaign
@pytest.mark.parametrize("name", ALL)
def test_every_feed_ends_as_the_page_says(target: tuple[str, frozenset[str]], name: str) -> None:
    url, extensions = target
    case = ALL[name]
    if case.needs is not None and case.needs not in extensions:
        pytest.skip(f"the server has no {case.needs}: run this with ABS_SERVICES=external")
    ends = found(url, case)
    for feed in feeds_of(name):
        for encoding in ENCODINGS:
            as_told(feed, encoding, ends[feed.value or ANY][encoding])


@pytest.mark.campaign
@pytest.mark.parametrize("name", ALL)
def test_every_feed_ends_by_spark_as_in_one_process(
    spark: SparkSession, target: tuple[str, frozenset[str]], name: str
) -> None:
    url, extensions = target
    case = ALL[name]
    if case.needs is not None and case.needs not in extensions:
        pytest.skip(f"the server has no {case.needs}: run this with ABS_SERVICES=external")
    for number, feed in enumerate(feeds_of(name)):
        encoding = ENCODINGS[number % len(ENCODINGS)]
        as_told(feed, encoding, copy(BySpark(spark), url, feed, encoding))


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("name", "other"), [(n, o) for n, others in OTHERS.items() for o in others]
)
def test_a_target_of_another_type_has_the_sources_value_or_is_refused(
    target: tuple[str, frozenset[str]], name: str, other: str
) -> None:
    for feed, encoding in product(feeds_of(name), ENCODINGS):
        if tells(feed, encoding, other):
            verdict = copy(InProcess(), target[0], feed, encoding, type=other)
            where = f"{name} into {other}, {feed.value}, {encoding}: {verdict.why}"
            assert verdict.how in (EQUAL, REFUSED, LOST), where


@pytest.mark.parametrize(
    ("name", "told"), [("numeric(10,2)", "decimals"), ("numeric", "decimals"), ("bytea", "binary")]
)
def test_a_feed_that_is_told_wrong_is_never_wrong(
    target: tuple[str, frozenset[str]], name: str, told: str
) -> None:
    for feed, other in product(feeds_of(name), SETTINGS[feed_setting(name)]):
        if {feed.value, other} <= {"bytes", "base64"}:
            continue  # one and the same in JSON
        if other not in (feed.value, "double"):
            more: dict[str, Any] = {"scales": {"v": 2}} if name == "numeric(10,2)" else {}
            verdict = copy(InProcess(), target[0], feed, "without schema", **{told: other}, **more)
            assert verdict.how != WRONG, f"{feed.value} read as {other}: {verdict}"


def feed_setting(name: str) -> str:
    return ALL[name].setting


def test_planted_bugs_are_found(
    target: tuple[str, frozenset[str]],
) -> None:
    decimal, forms, named = decode.decimal, placeholders._forms, decode._NAMED

    def check(name: str, value: str, encoding: str, **given: Any) -> None:
        verdict = copy(InProcess(), target[0], feed_of(name, value), encoding, **given)
        assert verdict.how != WRONG, verdict.why

    def without_lists(*given: Any) -> list[Any]:
        return [form for form in forms(*given) if not isinstance(form, list)]

    micros = {**named, "io.debezium.time.Timestamp": named["io.debezium.time.MicroTimestamp"]}

    def lenient(value: str, **_: Any) -> bytes:
        return base64.b64decode(value + "=" * (-len(value) % 4))

    fine = copy(
        InProcess(),
        target[0],
        feed_of("numeric(10,2)", "precise"),
        "with schema",
        type="numeric(12,4)",
    )
    assert fine.how == EQUAL, fine.why
    from_the_target = decode, "decimal", lambda value, scale: decimal(value, 4)
    with planted(from_the_target, match=r"1\.2345"):
        check("numeric(10,2)", "precise", "with schema", type="numeric(12,4)")
    with planted((placeholders, "_forms", without_lists)):
        check("integer[]", ANY, "with schema")
    with planted((decode, "_NAMED", micros)):
        check("timestamp(3)", "adaptive", "with schema", type="timestamp")
    with planted((convert, "from_base64", lenient)):
        check("bytea", "hex", "without schema", binary="base64")


def by_hand(truth: str, *events: tuple[str, int, Any, str]) -> Feed:
    """A feed of events: operation, key, value, and what its schema says."""
    bare = [json.dumps({"op": op, "after": {"id": key, "v": v}}) for op, key, v, _ in events]
    wrapped = [
        f'{{"schema":"{each[3]}","payload":{text}}}'
        for each, text in zip(events, bare, strict=True)
    ]
    return Feed(ALL["numeric"], None, wrapped, bare, [], {}, f"id\tv\n{truth}")


@pytest.mark.parametrize(
    ("feed", "value", "bare", "whole"),
    [
        # NaN and NULL are both sent as NULL: the copy may have NULL, and no third value.
        (by_hand("1\tNaN\n2\t\\N\n", ("r", 1, None, ""), ("c", 2, None, "")), "\\N", LOST, LOST),
        (by_hand("1\tNaN\n2\t\\N\n", ("r", 1, None, ""), ("c", 2, None, "")), "7", WRONG, WRONG),
        # One number under two schemas: without them it cannot be told.
        (
            by_hand("1\t0.5\n2\t5\n", ("r", 1, 5, "scale 1"), ("c", 2, 5, "scale 0")),
            "5",
            LOST,
            WRONG,
        ),
        # The mark of an unchanged value stands for the old one, whatever that is.
        (
            by_hand(
                "1\tA\n2\tB\n",
                *(("c", 1, "A", ""), ("u", 1, "mark", ""), ("c", 2, "B", ""), ("u", 2, "mark", "")),
            ),
            *("B", WRONG, WRONG),
        ),
    ],
)
def test_no_wrong_value_is_taken_for_one_that_was_sent_alike(
    feed: Feed, value: str, bare: str, whole: str
) -> None:
    made = re.sub("\t.*", lambda _: f"\t{value}", feed.truth.removeprefix("id\tv"), count=1)
    for encoding, how in (("without schema", bare), ("with schema", whole)):
        assert compared(feed, f"id\tv{made}", feed.truth, encoding).how == how


def test_no_verdict_is_wrong_and_every_feed_has_one() -> None:
    verdicts = kept()
    for feed in read():
        by_encoding = verdicts[feed.case.name][feed.value or ANY]
        assert set(by_encoding) == set(ENCODINGS)
        assert all(verdict.how != WRONG for verdict in by_encoding.values()), feed.case.name
    assert set(verdicts) == set(ALL)


def test_what_must_be_exact_is_equal_in_at_least_one_setting() -> None:
    names = ["smallint", "integer", "bigint", "text", "boolean", "date", "uuid", "json", "jsonb"]
    names += ["bytea", "mood", "timestamp", "timestamptz", "time"]
    names += [name for name in ALL if name.startswith("numeric") and "[]" not in name]
    names += [f"{kind}({n})" for kind in ("time", "timestamp", "timestamptz") for n in range(7)]
    names += [f"{kind}, after 2261" for kind in ("timestamp", "timestamp(3)", "timestamptz")]
    kinds = ("integer", "bigint", "numeric(10,2)", "text", "boolean", "date", "timestamp")
    names += [f"{kind}[]" for kind in (*kinds, "timestamptz", "uuid", "jsonb", "bytea", "mood")]
    verdicts = kept()
    for name, encoding in product(names, ENCODINGS):
        ends = [by_encoding[encoding] for by_encoding in verdicts[name].values()]
        assert any(map(exact, ends)), f"{name}, {encoding}: {ends}"


def exact(verdict: Verdict) -> bool:
    """Equal, but for arrays that Debezium sends as NULL: large ones that an update leaves, and some
    with a NULL in them; the page names them."""
    arrays = all(value.startswith("{") and sent == "null" for value, sent in verdict.lost)
    return verdict.how == EQUAL or (verdict.how == LOST and arrays)


def test_the_page_shows_what_the_check_found() -> None:
    text = PAGE.read_text()
    assert page(text, kept()) == text, "run python -m tests.kit.debezium.page"


@pytest.mark.campaign
def test_a_new_recording_sends_what_the_frozen_one_does(tmp_path_factory: Any) -> None:
    """Maven fetches Debezium; without it this fails and says so."""
    folder = tmp_path_factory.mktemp("feeds")
    settings = {"wal_level": "logical", "max_replication_slots": "20", "max_wal_senders": "20"}
    with NativePostgres(settings=settings) as server:
        left_out = set(feeds.record(server.admin_url, folder))
        feeds.record_incremental(server.admin_url, folder)
    feeds.freeze(folder, folder / "new.xz")
    new = {(feed.case.name, feed.value): feed for feed in read(folder / "new.xz")}
    for feed in read():
        if feed.case.name not in left_out:
            assert new[feed.case.name, feed.value].truth == feed.truth, feed.case.name
            assert len(new[feed.case.name, feed.value].bare) >= len(feed.bare) - 1, feed.case.name
