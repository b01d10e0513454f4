"""Names of tables: read as SQL reads them, quoted so that nothing in them is read as SQL."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abs_clients.postgres.name import TableName, check_identifier
from abs_core.errors import OptionError


@pytest.mark.parametrize(
    ("text", "schema", "name"),
    [
        ("flights", None, "flights"),
        ("Public.Flights", "public", "flights"),
        ('"My Schema"."Ta""ble"', "My Schema", 'Ta"ble'),
        ('app."Order"', "app", "Order"),
        (' a . "b" ', "a", "b"),
        ('"a.b"', None, "a.b"),
        ("tränen_1$", None, "tränen_1$"),
        ("ÄB", None, "Äb"),
        ('"select"', None, "select"),
    ],
)
def test_names_are_read_as_sql_reads_them(text: str, schema: str | None, name: str) -> None:
    assert TableName.parse(text) == TableName(name, schema)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        '"',
        '"a',
        '""',
        "my-table",
        "1st",
        "a b",
        "(select 1) t",
        "a.b.c",
        "a;drop table b",
        "a" * 64,
        '"' + "ä" * 32 + '"',
        '"a\0b"',
    ],
)
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(OptionError):
        TableName.parse(text)


def test_sixty_three_bytes_are_a_name() -> None:
    check_identifier("ä" * 31 + "a")
    with pytest.raises(OptionError, match="64 bytes"):
        check_identifier("ä" * 32)


_IDENTIFIERS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=15
)


@given(_IDENTIFIERS, st.none() | _IDENTIFIERS)
def test_a_quoted_name_reads_back_as_itself(name: str, schema: str | None) -> None:
    wanted = TableName(name, schema)
    assert TableName.parse(str(wanted)) == wanted
