"""What an appended row does that a unique index has already."""

from __future__ import annotations

import pyarrow as pa
import pytest

from abs_core.errors import AbsError, OptionError, SchemaError
from abs_sinks.postgres import PostgresOptions
from tests.sinks.postgres.changing import changing

pytestmark = pytest.mark.services
PLAIN = pa.schema([("id", pa.int64()), ("v", pa.string())])
FIRST, LATER = [(1, "a"), (2, "b")], [(2, "other"), (3, "c")]


@pytest.mark.parametrize("own", [True, False], ids=["own register", "foreign register"])
@pytest.mark.parametrize("key", [{}, {"key": "id"}], ids=["any index", "key"])
def test_nothing_leaves_the_row_that_is_there(
    shared_database: str, own: bool, key: dict[str, str]
) -> None:
    with changing(shared_database, "id bigint primary key, v text", PLAIN, own=own) as t:
        del t.given["sequenceby"]
        t.apply(FIRST, LATER, write="append", onconflict="nothing", **key)
        assert t.rows("id, v") == [(1, "a"), (2, "b"), (3, "c")]


def test_fail_stops_and_update_upserts(shared_database: str) -> None:
    with changing(shared_database, "id bigint primary key, v text", PLAIN) as t:
        del t.given["sequenceby"]
        with pytest.raises(AbsError, match="unique"):
            t.apply(FIRST, LATER, write="append", onconflict="fail")
        assert t.rows("id, v") == FIRST
        t.apply(LATER, write="append", onconflict="update", key="id")
        assert t.rows("id, v") == [(1, "a"), (2, "other"), (3, "c")]


def test_nothing_without_a_unique_index_is_refused(shared_database: str) -> None:
    with changing(shared_database, "id bigint, v text", PLAIN) as t:
        del t.given["sequenceby"]
        with pytest.raises(SchemaError, match="no unique index"):
            t.apply(FIRST, write="append", onconflict="nothing")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"protocol": "2pc", "onconflict": "nothing"}, "protocol=wal"),
        ({"write": "upsert", "key": "id", "onconflict": "nothing"}, "write=append"),
        ({"onconflict": "update", "protocol": "wal"}, "needs the option key"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(options: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        PostgresOptions.parse({"url": "postgresql://h/d", "dbtable": "t"} | options)
