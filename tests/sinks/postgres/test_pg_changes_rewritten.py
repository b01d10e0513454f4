"""A key that is written anew, and unchanged columns that are not written."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.sinks.postgres.changing import CHANGES, PARTIAL, changing

pytestmark = pytest.mark.services

NUMERALS = CHANGES.set(0, pa.field("id", pa.string()))


def test_a_row_has_the_key_as_its_last_change_writes_it(shared_database: str) -> None:
    columns = "id numeric primary key, v text"
    with changing(shared_database, columns, NUMERALS, positions="side") as t:
        t.apply([("1.0", 1, "c", "a")], [("1.0", 2, "d", None), ("1", 3, "c", "b")])
        assert t.rows("id::text, v") == [("1", "b")]


def test_an_unchanged_column_that_is_not_written_is_no_gap(shared_database: str) -> None:
    columns = "id bigint primary key, v text"
    given = {"unchanged": "same", "exceptcolumns": "big", "positions": "side"}
    with changing(shared_database, columns, PARTIAL, **given) as t:
        t.apply([(1, 1, "c", "a", "x", [])], [(1, 2, "u", "b", None, ["big"])])
        assert t.rows("id, v") == [(1, "b")]
