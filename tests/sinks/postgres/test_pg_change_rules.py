"""What changes do to a table, rule by rule: positions, tombstones, contradictions, locks, refusals."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from abs_clients.postgres.pool import close_idle
from abs_core.errors import AbsError, DataError, OptionError, RowError, SchemaError
from abs_core.model import Severity
from abs_sinks.postgres import PostgresGroup, PostgresOptions, PostgresSink
from abs_sinks.postgres.apply import changes_sql, changes_winner
from abs_testing.case import within
from tests.fault_proxy.postgres import LossyProxy
from tests.planted import planted
from tests.sinks.postgres.changing import BARE, CHANGES, OWN, PARTIAL, Changing, Job, changing
from tests.sinks.postgres.grouped import TwoTables

pytestmark = pytest.mark.services
SIDE = {"positions": "side"}


@pytest.fixture(params=["table", "side"])
def table(request: pytest.FixtureRequest, shared_database: str) -> Iterator[Changing]:
    columns, more = (OWN, {}) if request.param == "table" else (BARE, SIDE)
    with changing(shared_database, columns, **more) as made:
        yield made


@pytest.fixture
def own(shared_database: str) -> Iterator[Changing]:
    with changing(shared_database, OWN) as made:
        yield made


def test_the_last_change_of_a_key_wins_in_whatever_epoch_it_comes(table: Changing) -> None:
    table.apply([(1, 3, "u", "new"), (2, 1, "c", "a")], [(1, 2, "u", "old"), (2, 2, "d", None)])
    assert table.rows("id, v") == [(1, "new")]


def _worked(doc: str) -> tuple[str, list[tuple[int, int | None, str | None]]]:
    """The staged rows of the example in the docstring as SQL, and those that are picked."""
    lines = [line for line in doc.splitlines() if line.count(" | ") == 4]
    rows = [[cell.strip() for cell in line.split(" | ")] for line in lines[1:]]
    values = ", ".join(
        f"({id_}::int8, {at}::int8, '{op}', nullif('{v}', 'null'))" for id_, at, op, v, _ in rows
    )
    picked = []
    for id_, at, _, _, becomes in rows:
        word = becomes.partition(":")[0]
        if word != "left out":
            position = None if at == "null" else int(at)
            picked.append((int(id_), position, None if word == "applied" else word))
    return f"select * from (values {values}) v (id, at, op, v)", picked


def test_the_example_of_the_query_is_what_it_does(table: Changing) -> None:
    table.apply([(1, 5, "c", "five"), (2, 7, "d", None)])
    staged, picked = _worked(str(changes_winner.__doc__))
    write = table.sink()._table.target().write
    query = write.picking(sql.SQL(staged))
    assert query is not None
    columns = sql.SQL('select id, at, "abs:problem" from ({}) w').format(query)
    found = table.db.execute(columns).fetchall()
    assert sorted(map(str, found)) == sorted(map(str, picked))


def test_a_delete_of_a_row_that_is_not_there_leaves_a_tombstone(table: Changing) -> None:
    table.apply([(1, 5, "d", None)], [(1, 4, "c", "late")])
    assert (table.rows("id"), table.positions()) == ([], [(1, 5, True)])


def test_a_delete_older_than_the_row_does_nothing(table: Changing) -> None:
    table.apply([(1, 5, "c", "v")], [(1, 4, "d", None)])
    assert table.rows("id, v") == [(1, "v")]


def test_a_row_without_a_position_is_older_than_any_change(table: Changing) -> None:
    table.db.execute(f"insert into {table.table} (id, v) values (1, 'a'), (2, 'b'), (3, 'c')")
    table.apply([(1, -9, "u", "new"), (2, -9, "d", None)])
    assert table.rows("id, v") == [(1, "new"), (3, "c")]


def test_an_insert_after_an_expired_tombstone_is_applied(table: Changing) -> None:
    table.apply([(1, 5, "d", None), (2, 5, "d", None)])
    long_ago = "update {} set \"abs:gone\" = now() - interval '2 days 1 second' where id = 1"
    table.db.execute(sql.SQL(long_ago).format(sql.SQL(table._positions() or "")))
    table.apply([(3, 1, "c", "v")])
    assert [row[0] for row in table.positions() if row[2]] == [2]
    table.apply([(1, 4, "c", "v"), (2, 4, "c", "v")])
    assert table.rows("id") == [(1,), (3,)]


def test_a_key_that_is_deleted_again_has_a_tombstone_of_its_new_age(table: Changing) -> None:
    """Of the first age it would expire too early, and an older change would bring the row back."""
    table.apply([(1, 5, "d", None)])
    age(table, "1 day")
    table.apply([(1, 6, "c", "v")])
    assert (1, 6, True) not in table.positions(), "the row is there"
    table.apply([(1, 7, "d", None)])
    assert ages(table) == [0]


def test_a_delete_that_comes_again_does_not_renew_its_tombstone_nor_a_row_its_version(
    table: Changing,
) -> None:
    """An equal position is not newer."""
    changes = [(1, 5, "d", None), (2, 5, "c", "v")]
    table.apply(changes)
    age(table, "1 day")
    before = table.db.execute(f"select xmin::text from {table.table}").fetchall()
    table.apply(changes)
    assert ages(table) == [1]
    assert table.db.execute(f"select xmin::text from {table.table}").fetchall() == before


def age(table: Changing, by: str) -> None:
    """Let the tombstones be older."""
    query = 'update {} set "abs:gone" = "abs:gone" - {}::interval'
    table.db.execute(sql.SQL(query).format(sql.SQL(table._positions() or ""), by))


def ages(table: Changing) -> list[int]:
    """The age of each tombstone in days."""
    query = 'select extract(day from now() - "abs:gone")::int from {} where "abs:gone" is not null'
    return [n for (n,) in table.db.execute(query.format(table._positions()))]


def test_the_same_change_again_changes_nothing(
    table: Changing, caplog: pytest.LogCaptureFixture
) -> None:
    changes = [(1, 5, "c", "v"), (2, 5, "d", None)]
    table.apply([*changes, *changes], changes)
    assert table.rows("id, v") == [(1, "v")]
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


def test_two_changes_of_one_position_in_one_epoch_are_an_error(table: Changing) -> None:
    for other in ((1, 5, "c", "other"), (1, 5, "d", None)):
        with pytest.raises(DataError, match=r'key \("id"\) = \(1\) and position \("at"\) = \(5\)'):
            table.apply([(1, 5, "c", "v"), other, (1, 6, "c", "w")])
    assert table.rows("id") == []


def test_of_two_changes_of_one_position_in_two_epochs_the_first_stays_and_it_is_told(
    table: Changing, caplog: pytest.LogCaptureFixture
) -> None:
    table.apply(
        [(1, 5, "c", "first"), (2, 5, "d", None)],
        [(1, 5, "c", "other"), (2, 5, "c", "other"), (3, 5, "c", "v")],
    )
    assert table.rows("id, v") == [(1, "first"), (3, "v")]
    (told,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert "2 of the changes" in told
    assert '("id") = (1)' in told


@pytest.mark.parametrize(
    "bad", [(None, 1, "c", "v"), (1, None, "c", "v"), (1, 1, None, "v")], ids=["key", "at", "op"]
)
def test_null_in_key_position_or_operation_is_an_error(table: Changing, bad: Any) -> None:
    with pytest.raises((DataError, RowError), match="NULL"):
        table.apply([(2, 1, "c", "v"), bad])
    assert table.rows("id") == []


def test_a_partial_change_is_never_taken_for_null(shared_database: str) -> None:
    with changing(shared_database, f"{OWN}, big text not null", PARTIAL, unchanged="same") as t:
        t.apply([(1, 1, "c", "a", "B", None)], [(1, 3, "u", "b", None, ["big"])])
        assert t.rows("id, v, big") == [(1, "b", "B")]
        for bad, why in (
            ((1, 2, "u", "c", None, ["big"]), "older than its row"),
            ((2, 2, "u", "c", None, ["big"]), "does not exist"),
            ((1, 4, "u", "c", None, ["id"]), "does not have"),
        ):
            with pytest.raises(DataError, match=why):
                t.apply([bad])
        with pytest.raises(DataError, match="does not exist"):
            t.apply([(1, 5, "d", None, None, None), (1, 6, "u", "c", None, ["big"])])
        assert t.rows("id, v, big") == [(1, "b", "B")]
        t.apply([(1, 3, "u", "b", None, ["big"]), (1, 7, "u", None, "C", ["v"])])
        assert t.rows("id, v, big") == [(1, "b", "C")]


def test_a_changed_key_frees_what_is_unique_before_it_is_taken(own: Changing) -> None:
    own.db.execute(f"create unique index on {own.table} (v)")
    own.apply([(1, 1, "c", "mail")], [(1, 2, "d", None), (2, 2, "c", "mail")])
    assert own.rows() == [(2, 2, "mail")]


def test_what_is_unique_and_not_freed_first_is_found(own: Changing) -> None:
    with planted((changes_sql, "releasing", lambda *_: []), by=AbsError, match="unique"):
        test_a_changed_key_frees_what_is_unique_before_it_is_taken(own)


class Two(TwoTables):
    """A parent's table and its child's; tasks of even numbers write the parent's changes."""

    def __init__(self, both: list[PostgresOptions]) -> None:
        self._sinks = [PostgresSink(options, CHANGES) for options in both]
        self._group = PostgresGroup({n: (options, CHANGES) for n, options in enumerate(both)})
        self._own = True


def test_rows_that_refer_to_each_other_are_inserted_and_deleted_in_one_epoch(own: Changing) -> None:
    child = f"{own.table}_child"
    own.db.execute(
        f"create table {child} (id bigint primary key references {own.table}, at bigint, v text)"
    )
    both = [PostgresOptions.parse(own.given | {"dbtable": name}) for name in (own.table, child)]
    job = Job(Two(both), CHANGES, "job")
    for at, op, there in ((1, "c", [(1,)]), (2, "d", [])):
        job.apply(at, [(1, at, op, "parent")], [(1, at, op, "child")])
        assert own.rows("id") == there
        assert own.db.execute(f"select id from {child}").fetchall() == there
    own.db.execute(f"drop table {child}")


def insert_beside_a_delete(own: Changing) -> None:
    """An older insert by a second job, while the first one's delete is not committed yet."""
    reached, go_on = Event(), Event()

    def paused() -> None:
        reached.set()
        assert go_on.wait(30)

    own.apply([(9, 1, "c", "v")])
    with LossyProxy(own.url) as proxy, ThreadPoolExecutor(2) as threads:
        first = own.job("deletes", url=proxy.url)
        proxy.before("; COMMIT\0", paused)  # with the drop of what was staged
        delete = threads.submit(first.apply, 0, [(1, 5, "d", None)])
        assert reached.wait(30)
        insert = threads.submit(own.apply, [(1, 4, "c", "late")])
        waits = "select from pg_locks where locktype = 'advisory' and not granted"
        assert within(60, lambda: insert.done() or own.db.execute(waits).fetchone() is not None)
        go_on.set()
        delete.result()
        insert.result()
        close_idle()
    assert own.rows("id") == [(9,)]


def test_an_insert_waits_for_a_delete_that_is_not_committed_yet(own: Changing) -> None:
    insert_beside_a_delete(own)


def test_a_missing_lock_is_found(own: Changing) -> None:
    with planted((changes_sql, "locking", lambda _: sql.SQL("select 1").format())):
        insert_beside_a_delete(own)


def test_jobs_on_two_tables_take_their_turns_in_one_order(own: Changing) -> None:
    """Whatever the order of their sinks: in two orders each could wait for the other."""
    other = f"{own.table}_other"
    own.db.execute(f"create table {other} (id bigint primary key, at bigint, v text)")
    turn = f"1633842994, ('{own.table}'::regclass::oid::int8 - 2147483648)::int4"
    locks = "select granted from pg_locks where locktype = 'advisory' and classid = 1633842994"
    for job, names in (("one", (own.table, other)), ("two", (other, own.table))):
        both = [PostgresOptions.parse(own.given | {"dbtable": name}) for name in names]
        writes = Job(Two(both), CHANGES, job)
        own.db.execute(f"select pg_advisory_lock({turn})")
        with ThreadPoolExecutor(1) as threads:
            applied = threads.submit(writes.apply, 0, [(1, 1, "c", "a")], [(1, 1, "c", "b")])
            assert within(60, lambda: (False,) in own.db.execute(locks).fetchall())
            held = own.db.execute(f"{locks} and granted").fetchall()
            own.db.execute(f"select pg_advisory_unlock({turn})")
            applied.result()
        assert len(held) == 1, f"{names}: it waits for the first turn, and has the other one"
    own.db.execute(f"drop table {other}")


def test_two_jobs_share_the_positions_of_a_table_with_one_order(own: Changing) -> None:
    own.apply([(1, 5, "d", None)], job="one")
    own.apply([(1, 4, "c", "v")], job="two")
    assert own.rows() == []
    with pytest.raises(SchemaError, match="Jobs on one table share its positions"):
        own.apply([(1, 6, "c", "v")], job="three", positions="side")
    with pytest.raises(SchemaError, match="Jobs on one table share its positions"):
        own.apply([(1, 6, "c", "v")], job="four", stateschema=f"{own.state}x")
    assert own.rows() == []


@pytest.mark.parametrize("kind", ["partition", "child"])
def test_changes_of_a_table_and_of_a_part_of_it_would_not_be_in_one_order(
    own: Changing, kind: str
) -> None:
    """Also by two levels; by what the error says they go on."""
    part, inner = f"{own.table}_part", f"{own.table}_inner"
    columns = "id bigint primary key, at bigint, v text"
    own.db.execute(f"drop table {own.table}")
    if kind == "partition":
        own.db.execute(f"create table {own.table} ({columns}) partition by range (id)")
        of = f"partition of {own.table} for values from (0) to (9) partition by range (id)"
        own.db.execute(f"create table {part} {of}")
        own.db.execute(f"create table {inner} partition of {part} for values from (0) to (5)")
    else:
        own.db.execute(f"create table {own.table} ({columns})")
        own.db.execute(f"create table {part} (primary key (id)) inherits ({own.table})")
        own.db.execute(f"create table {inner} (primary key (id)) inherits ({part})")
    own.apply([(1, 5, "d", None)], dbtable=inner)
    for other in (own.table, part):
        with pytest.raises(SchemaError, match="shares rows with") as refused:
            own.apply([(1, 4, "c", "older")], dbtable=other)
        assert own.rows() == []
    (drop,) = re.findall(r"DROP TABLE [^;]+", refused.value.remedy)
    own.db.execute(drop)
    own.apply([(1, 6, "c", "newer")])
    assert own.rows() == [(1, 6, "newer")]
    with pytest.raises(SchemaError, match="best the parent"):
        own.apply([(1, 7, "d", None)], dbtable=inner)


@pytest.mark.parametrize("related", [True, False])
def test_a_table_shares_rows_with_its_parents_and_its_parts_and_with_no_other(
    own: Changing, related: bool
) -> None:
    part = f"{own.table}_part"
    own.db.execute(f"create table {part} (primary key (id)) inherits ({own.table})")
    if not related:
        own.db.execute(f"alter table {part} no inherit {own.table}")
    given = PostgresOptions.parse({"url": own.url, "dbtable": part})
    of_part = PostgresSink(given, pa.schema([("id", pa.int64())]))
    of_table = own.sink()
    assert of_table.shares_rows(of_part.target_id) is related
    assert of_part.shares_rows(of_table.target_id) is related
    assert not of_table.shares_rows(of_table.target_id.replace("/", "/another", 1))
    own.db.execute(f"drop table {part}")


def test_the_names_in_the_state_schema_do_not_move(shared_database: str) -> None:
    """Tombstones that an earlier release left must be found."""
    with changing(shared_database, BARE, **SIDE) as t:
        t.db.execute(f"alter table {t.table} rename to orders")
        try:
            t.apply([(1, 1, "c", "v")], dbtable="public.orders")
            assert t._positions() == f"{t.state}.positions_3064c4f7315d89b625ca4476a295dd92"
            found = t.db.execute(f"select obj_description('{t._positions()}'::regclass)").fetchone()
            assert found == (
                (
                    '{"table": "\\"public\\".\\"orders\\"", "key": ["id"], "sequenceby": ["at"],'
                    ' "positions": "side"}'
                ),
            )
            query = "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0"
            names = [name for (name,) in t.db.execute(query, (t._positions(),))]
            assert names == ["id", "at", "abs:gone"]
        finally:
            t.db.execute(f"alter table orders rename to {t.table}")


def test_an_update_of_positions_finds_room_in_its_page(shared_database: str) -> None:
    """Else each update of a row writes the indexes of the positions table, too."""
    with changing(shared_database, BARE, **SIDE) as t:
        pages = []
        for position in range(2):
            t.apply([(key, position, "u", "v") for key in range(1000)])
            query = f"select split_part(ctid::text, ',', 1) from {t._positions()} order by id"
            pages.append(t.db.execute(query).fetchall())
        assert pages[0] == pages[1]
        assert len({*pages[0]}) > 5


def test_a_table_without_a_place_for_positions_is_refused_with_both_ways(
    shared_database: str,
) -> None:
    with changing(shared_database, BARE) as bare:
        with pytest.raises(SchemaError, match=r"positions=side") as refused:
            bare.apply([(1, 1, "c", "v")])
        assert "ADD COLUMN" in refused.value.remedy
        found = bare.sink().preflight("job")
        assert any(f.severity is Severity.ERROR and "position" in f.what for f in found)


TYPES = {
    "smallint": (pa.int16(), [1, 2]),
    "integer": (pa.int32(), [-1, 2]),
    "numeric(20,2)": (pa.decimal128(20, 2), ["9.5", "10.0"]),
    "date": (pa.date32(), ["0999-12-31", "1000-01-01"]),
    "timestamptz": (pa.timestamp("us", "UTC"), [0, 1]),
    "pg_lsn": (pa.string(), ["9/FF", "10/0"]),
    "uuid": (
        pa.string(),
        ["0a000000-0000-0000-0000-000000000000", "A" * 8 + "-0000-0000-0000-000000000000"],
    ),
    'text collate "C"': (pa.string(), ["Z", "a"]),
}


@pytest.mark.parametrize("kind", TYPES)
def test_positions_of_many_types_are_compared_by_the_server(
    shared_database: str, kind: str
) -> None:
    arrow, values = TYPES[kind]
    low, high = (
        pa.array(values).cast(arrow, safe=False).to_pylist()
        if arrow != pa.date32()
        else (pa.array(values).cast(arrow).to_pylist())
    )
    schema = CHANGES.set(1, pa.field("at", arrow))
    with changing(shared_database, f"id bigint primary key, at {kind}, v text", schema) as t:
        t.apply([(1, high, "c", "high"), (1, low, "c", "low")], [(1, low, "c", "low")])
        assert t.rows("v") == [("high",)]
    if kind not in ("pg_lsn", "uuid"):
        with changing(shared_database, BARE, schema, **SIDE) as t:
            t.apply([(1, low, "c", "low")], [(1, high, "d", None)], [(1, low, "c", "low")])
            assert t.rows("v") == []


@pytest.mark.parametrize("kind", ["text", "double precision", "boolean", "jsonb"])
def test_a_position_without_a_sure_order_is_refused(shared_database: str, kind: str) -> None:
    arrow = {"double precision": pa.float64(), "boolean": pa.bool_()}.get(kind, pa.string())
    schema = CHANGES.set(1, pa.field("at", arrow))
    columns = f"id bigint primary key, at {kind}, v text"
    with (
        changing(shared_database, columns, schema) as t,
        pytest.raises(SchemaError, match="position"),
    ):
        _ = t.sink().target_id


def test_the_key_may_be_any_unique_index_and_default_is_the_primary_key(
    shared_database: str,
) -> None:
    with changing(shared_database, "id bigint not null, at bigint, v text") as t:
        with pytest.raises(SchemaError, match="no primary key"):
            _ = t.sink().target_id
        t.db.execute(f"create unique index on {t.table} (id)")
        t.apply([(1, 1, "c", "a")], [(1, 2, "d", None)], key="id")
        assert t.rows() == []


def test_a_partitioned_table_needs_the_partitions_column_in_the_key(shared_database: str) -> None:
    parts = "id bigint, at bigint, v text not null, primary key (id, v)) partition by list (v"
    with changing(shared_database, parts) as t:
        t.db.execute(f"create table {t.table}_a partition of {t.table} for values in ('a')")
        t.db.execute(f"create table {t.table}_b partition of {t.table} for values in ('b')")
        t.apply([(1, 1, "c", "a"), (1, 1, "c", "b")], [(1, 2, "d", "a"), (1, 0, "d", "b")])
        assert t.rows() == [(1, 1, "b")]
        with pytest.raises(SchemaError, match="must contain the partition's columns"):
            _ = t.sink(key="id").target_id


def test_a_boolean_column_may_say_what_deletes_and_columns_may_be_left_out(
    shared_database: str,
) -> None:
    schema = pa.schema(
        [("id", pa.int64()), ("at", pa.int64()), ("gone", pa.bool_()), ("v", pa.string())]
    ).append(pa.field("more", pa.string()))
    given = {"applyasdeletes": "gone", "exceptcolumns": "more"}
    with changing(shared_database, OWN, schema, **given) as t:
        t.apply([(1, 1, False, "a", "x"), (2, 1, False, "b", "x")], [(1, 2, True, None, None)])
        assert t.rows() == [(2, 1, "b")]


def test_a_missing_table_is_created_without_the_operation(shared_database: str) -> None:
    with changing(shared_database, OWN, createtable="true", key="id") as t:
        t.db.execute(f"drop table {t.table}")
        t.apply([(1, 1, "c", "a")], [(1, 2, "u", "b")])
        assert t.rows("*") == [(1, 2, "b")]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"protocol": "2pc"}, "cannot apply changes"),
        ({"write": "replace"}, "write=replace"),
        ({"applyastruncates": "op=t"}, "truncates are not applied"),
        ({"storedasscdtype": "2"}, "newest row"),
        ({"deletes": "soft"}, "soft deletes are not written"),
        ({"orderby": "at"}, "use sequenceby"),
        ({"write": "append", "protocol": "wal"}, "did you mean write=changes"),
        ({"key": "at"}, "in key and in sequenceby"),
        ({"applyasdeletes": "a,b"}, "not a column"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(given: dict[str, str], why: str) -> None:
    options = {
        "url": "postgresql://h/d",
        "dbtable": "t",
        "write": "changes",
        "protocol": "wal",
        "sequenceby": "at",
    }
    with pytest.raises(OptionError) as refused:
        PostgresOptions.parse(options | given)
    assert why in str(refused.value)


def test_a_role_without_delete_is_told_at_the_start(own: Changing) -> None:
    with psycopg.connect(own.url, autocommit=True) as db:
        db.execute(f"revoke delete on {own.table} from current_user")
        found = own.sink().preflight("job")
        db.execute(f"grant delete on {own.table} to current_user")
    assert any("lacks DELETE" in finding.what for finding in found)
