"""No part of a password gets out, whatever character is in it, and wherever it is (I9)."""

from __future__ import annotations

import json
import string
import traceback
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from abs_audit.locate import relation
from abs_cli.sites import Registers
from abs_cli.trail import noted
from abs_clients.postgres.address import Address
from abs_clients.postgres.connection import connect
from abs_core.errors import AbsError, UnavailableError
from abs_sinks.door import shown
from abs_sinks.postgres import PostgresOptions

PARTS = ("Zq9x", "Wv7k", "Jh4w")
"""What a password is made of, with special characters between: no message has one of these in it."""

SPECIAL = st.text(st.sampled_from(string.punctuation + " \t\n§é💥\x01"), min_size=0, max_size=3)
PASSWORDS = st.builds(lambda a, b, c: PARTS[0] + a + PARTS[1] + b + PARTS[2] + c, *[SPECIAL] * 3)

NOWHERE = "127.0.0.1:1"
"""A port where nothing listens."""

FORMS: dict[str, Callable[[str], str]] = {
    "uri": lambda p: f"postgresql://me:{p}@{NOWHERE}/db",
    "uri, user only": lambda p: f"postgresql://{p}@{NOWHERE}/db",
    "uri, encoded": lambda p: f"postgresql://me:{quote(p, safe='')}@{NOWHERE}/db",
    "uri, parameter": lambda p: f"postgresql://me@{NOWHERE}/db?password={quote(p, safe='')}",
    "jdbc": lambda p: f"jdbc:postgresql://me:{p}@{NOWHERE}/db",
    "jdbc, parameter": lambda p: (
        f"jdbc:postgresql://{NOWHERE}/db?user=me&password={quote(p, safe='')}"
    ),
    "keywords": lambda p: (
        "host=127.0.0.1 port=1 dbname=db user=me password='"
        + p.replace("\\", "\\\\").replace("'", "\\'")
        + "'"
    ),
    "keywords, not quoted": lambda p: f"host=127.0.0.1 port=1 dbname=db password={p}",
    "no scheme": lambda p: f"me:{p}@{NOWHERE}/db",
    "kafka": lambda p: f"kafka://me:{p}@{NOWHERE}/topic",
    "kafka, parameter": lambda p: f"kafka://{NOWHERE}/topic?sasl.password={quote(p, safe='')}",
    "s3": lambda p: f"s3://me:{p}@bucket/prefix",
}
SHOWS_THE_USER = {"uri, user only"}
"""A name is no secret: what is shown of it is for the sink to say."""

OF_POSTGRES = [
    name for name in FORMS if not name.startswith(("kafka", "s3")) and name != "no scheme"
]


def told(error: AbsError) -> str:
    """All that a person can get to see of it."""
    return "".join(traceback.format_exception(error)) + repr(error)


def assert_hidden(text: str) -> None:
    assert not [part for part in PARTS if part in text], text


@pytest.mark.parametrize("form", FORMS)
@given(password=PASSWORDS)
def test_no_part_of_a_password_is_shown_of_a_url(form: str, password: str) -> None:
    assert_hidden(shown(FORMS[form](password)))


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=15)
@given(password=PASSWORDS)
def test_no_part_of_a_password_reaches_the_trail(
    tmp_path_factory: pytest.TempPathFactory, form: str, password: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        path: Path = tmp_path_factory.mktemp("trail") / "trail.jsonl"
        patch.setenv("ABS_TRAIL", str(path))
        with noted("abort", "job", FORMS[form](password)):
            pass
        text = path.read_text()
    assert json.loads(text.splitlines()[0])["at"]
    assert_hidden(text)


@pytest.mark.parametrize("form", [form for form in OF_POSTGRES if form not in SHOWS_THE_USER])
@example(password="Zq9xWv7k@Jh4w,")  # what follows was taken for two hosts
@given(password=PASSWORDS)
def test_no_part_of_a_password_is_in_an_address_or_its_error(form: str, password: str) -> None:
    url = FORMS[form](password)
    try:
        address = Address.parse(url)
        options = PostgresOptions.parse({"url": url, "dbtable": "t"})
    except AbsError as error:
        assert_hidden(told(error))
    else:
        assert_hidden(f"{address} {address!r} {address.label} {address.place} {options!r}")
    for read in (lambda: Registers.at(url, "abs"), lambda: relation([url], table="t")):
        try:
            assert_hidden(repr(read()))
        except AbsError as error:
            assert_hidden(told(error))


@pytest.mark.parametrize("form", [form for form in OF_POSTGRES if form not in SHOWS_THE_USER])
@pytest.mark.parametrize(
    "special", ["#", "?", "@", "/", ":", "%", "&", "=", "[", "]", "'", "\\", " "]
)
def test_no_part_of_a_password_is_in_the_error_of_a_connection(form: str, special: str) -> None:
    url = FORMS[form](special.join(PARTS))
    try:
        options = PostgresOptions.parse({"url": url, "dbtable": "t", "connecttimeout": "1"})
    except AbsError as error:
        assert_hidden(told(error))
        return
    with pytest.raises(UnavailableError) as caught:
        connect(options.server)
    assert_hidden(told(caught.value))


def test_a_password_with_a_hash_is_not_taken_for_a_host() -> None:
    assert shown("postgresql://u:s3cr#et@h/db") == "postgresql://h/db"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://me:geheim@db:5432/abs?password=geheim", "postgresql://db:5432/abs"),
        ("jdbc:postgresql://db:5432/abs?user=me&password=geheim", "postgresql://db:5432/abs"),
        ("host=db port=5432 dbname=abs password=geheim", "postgresql://db:5432/abs"),
        ("host=db password=geheim", "a database"),
        ("kafka://a:1,b:2/topic?config=file", "kafka://a:1,b:2/topic"),
        ("s3://bucket/prefix?endpoint=http://h:1", "s3://bucket/prefix"),
    ],
)
def test_a_place_is_named_without_credentials(url: str, expected: str) -> None:
    assert shown(url) == expected
