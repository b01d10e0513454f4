"""What the check found for each feed, kept beside the feeds: the page shows it, and tests hold it.

``python -m tests.kit.debezium.verdicts URL`` checks all, on an empty database of a server that has the
extensions hstore, citext and ltree.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.kit.debezium.copying import ENCODINGS, InProcess, Verdict, copy
from tests.kit.debezium.feeds import Case, Feed, read

FILE = Path(__file__).parent / "recorded" / "verdicts.json"
ANY = "any"
"""The value of the setting where none changes how a type is sent."""

Verdicts = Mapping[str, Mapping[str, Mapping[str, Verdict]]]
"""By the case's name, the setting's value, and the encoding."""

OTHERS = {
    "integer": ("bigint", "numeric(20,0)", "text"),
    "bigint": ("numeric(20,0)", "numeric(30,4)", "text"),
    "numeric(10,2)": ("numeric(12,4)", "numeric(20,6)", "numeric", "text"),
    "numeric(5,0)": ("integer", "numeric(10,2)", "double precision"),
    "numeric(12,4)": ("numeric(10,2)",),
    "numeric(5,-2)": ("numeric(5,0)", "numeric(10,0)", "numeric"),
    "numeric": ("numeric(1000,300)", "text"),
    "real": ("double precision",),
    "varchar(20)": ("text", "varchar(40)", "varchar(10)"),
    "text": ("varchar(1000)",),
    "date": ("timestamp", "text"),
    "timestamp(3)": ("timestamp", "timestamp(1)", "text"),
    "timestamp": ("timestamp(3)", "timestamp(0)", "text"),
    "timestamptz": ("timestamptz(3)", "timestamp", "text"),
    "time": ("time(3)", "text"),
    "uuid": ("text",),
    "jsonb": ("json", "text"),
    "bytea": ("text",),
    "mood": ("text",),
    "integer[]": ("bigint[]", "text"),
    "numeric(10,2)[]": ("numeric(12,4)[]", "numeric[]"),
    "timestamp(3)[]": ("timestamp[]",),
}
"""Other types of a target: the copy is what PostgreSQL makes of the source's value, or is refused."""


def tells(feed: Feed, encoding: str, other: str) -> bool:
    """Whether the events tell enough for a target of another type; the page says where they do not.

    Without a schema the target's types must be the source's, but for sizes. A number of
    ``decimal.handling.mode=double`` looks like one of a double precision, a binary as text like a
    text, and ``connect`` cuts digits where PostgreSQL rounds.
    """
    family = re.sub(r"\(.*?\)", "", feed.case.name)
    alike = family == re.sub(r"\(.*?\)", "", other)
    if encoding == "without schema" and not alike:
        return False
    if feed.value == "double":
        return alike
    return feed.value != "connect" and (feed.case.name != "bytea" or feed.value == "bytes")


def feeds_of(name: str) -> Iterator[Feed]:
    """The feeds of one case."""
    return (feed for feed in read() if feed.case.name == name)


def found(url: str, case: Case) -> dict[str, dict[str, Verdict]]:
    """Copy each feed of the case in each encoding."""
    return {
        feed.value or ANY: {each: copy(InProcess(), url, feed, each) for each in ENCODINGS}
        for feed in feeds_of(case.name)
    }


def kept() -> Verdicts:
    """What was found when the page was made."""
    return {
        name: {
            value: {
                each: Verdict(how, lost=tuple((value, sent) for value, sent in lost))
                for each, (how, lost) in by_encoding.items()
            }
            for value, by_encoding in by_value.items()
        }
        for name, by_value in json.loads(FILE.read_text()).items()
    }


def keep(verdicts: Verdicts) -> None:
    """Write what was found."""
    plain = {
        name: {
            value: {each: [verdict.how, verdict.lost] for each, verdict in by_encoding.items()}
            for value, by_encoding in by_value.items()
        }
        for name, by_value in verdicts.items()
    }
    FILE.write_text(json.dumps(plain, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    import sys

    import psycopg

    from tests.kit.debezium.feeds import CASES, prepare
    from tests.kit.debezium.scenarios import INCREMENTAL

    with psycopg.connect(sys.argv[1], autocommit=True) as db:
        prepare(db)
    keep({case.name: found(sys.argv[1], case) for case in (*CASES, INCREMENTAL)})
