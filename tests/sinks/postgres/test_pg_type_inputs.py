"""Values that a type's own input refuses, with codes that are no errors of data elsewhere."""

from __future__ import annotations

import pyarrow as pa
import pytest

from abs_core.errors import RowError
from abs_sinks.postgres.letters import copy_with_letters
from tests.planted import planted
from tests.sinks.postgres.changing import CHANGES, Changing, changing

pytestmark = pytest.mark.services

TYPES = {"tsquery": ("a & b", "a b"), "jsonpath": ("$.a", "$$$")}
SCHEMA = CHANGES.append(pa.field("x", pa.string()))


def _apply(t: Changing, good: str, bad: str) -> None:
    t.apply([(1, 1, "c", "a", good), (2, 1, "c", "b", bad), (3, 1, "c", "c", None)])


@pytest.mark.parametrize("kind", TYPES)
def test_a_value_that_the_types_input_refuses_is_a_dead_letter(
    shared_database: str, kind: str
) -> None:
    columns = f"id bigint primary key, v text, x {kind}"
    with changing(shared_database, columns, SCHEMA, positions="side") as t:
        with pytest.raises(RowError) as caught:
            _apply(t, *TYPES[kind])
        assert "option deadletter" in caught.value.remedy
        dead = f"{t.table}_dead"
        t.given |= {"deadletter": dead, "deadlettermax": "1"}
        try:
            _apply(t, *TYPES[kind])
            assert t.rows("id") == [(1,), (3,)]
            (letter,) = t.db.execute(f"select code, \"row\" ->> 'id' from {dead}").fetchall()
            assert (letter[0][:2], letter[1]) == ("42", "2")
        finally:
            t.db.execute(f"drop table if exists {dead}")


def test_the_check_finds_values_that_stop_the_query(shared_database: str) -> None:
    bug = copy_with_letters, "by_data", lambda error: error.sqlstate[:2] == "22"
    with planted(bug, by=(AssertionError, RowError)):
        test_a_value_that_the_types_input_refuses_is_a_dead_letter(shared_database, "tsquery")
