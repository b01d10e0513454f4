"""Sinks of one database share transactions: no row of an epoch, or of a task, without the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest

from abs_core.contracts import Task
from abs_core.deadletters import Count, noted
from abs_core.errors import DataError, ProtocolError, SchemaError, TargetError
from abs_core.model import Committable
from abs_core.registers import MemoryRegister
from abs_core.sinkmap import STRIDE
from abs_sinks.postgres import PostgresGroup, PostgresOptions, transactions_of
from abs_sinks.postgres import sink as of_groups
from abs_sinks.postgres.apply.target import Part, SinkTable
from abs_sinks.postgres.testing import Variant
from abs_sinks.postgres.twophase import GroupTwoPhaseWriter, TwoPhaseWriter
from abs_testing.case import JOB, Case, rows
from abs_testing.check_crashes import ForkServer, check_crashes
from abs_testing.check_sink import run_check
from abs_testing.checks import CHECKS
from abs_testing.engine import Run
from abs_testing.harness import SCHEMA, batch_of
from abs_testing.rules import Check
from tests import sample
from tests.planted import Bug, Plant, planted
from tests.sinks.postgres.grouped import (
    GROUPED,
    GroupHarness,
    check_one_transaction,
    open_group,
)

pytestmark = pytest.mark.services
SAMPLED = {n: v for n, v in GROUPED.items() if v.own_register or v.protocol == "wal"}
"""Under 2pc the handles are the same wherever the register is."""
RENAMED = "a_committable_names_its_writer"
FOREIGN_WAL = GROUPED["wal-append-foreign-register"]


@pytest.fixture
def referring(shared_database: str, variant: Variant) -> Iterator[GroupHarness]:
    """The second table's ids refer to the first one's."""
    with open_group(shared_database, variant) as harness:
        if variant.write == "append":
            harness.db.execute(f"alter table {harness.table} add primary key (id)")
        harness.db.execute(
            f"alter table {harness.second} add foreign key (id) references {harness.table}"
        )
        yield harness


def keeps(database: str, variant: Variant, checks: Sequence[Check]) -> int:
    """How many of these rules the two tables were put to; they keep them."""
    # Under wal the harness chooses a task's table by its handle, which has another number then.
    mine = [c for c in checks if c.rule != RENAMED or variant.protocol == "2pc"]
    return sum([run_check(partial(open_group, database, variant), check) for check in mine])


@pytest.mark.parametrize("variant", SAMPLED.values(), ids=SAMPLED)
def test_two_tables_keep_the_rules_of_the_day(shared_database: str, variant: Variant) -> None:
    """Each rule is dealt to one of the ways; where it does not apply it waits."""
    ways = list(SAMPLED.values())
    dealt = sample.hand(CHECKS, ways.index(variant), len(ways), "postgres groups")
    assert keeps(shared_database, variant, dealt) > 3


@pytest.mark.campaign
@pytest.mark.parametrize("variant", GROUPED.values(), ids=GROUPED)
def test_two_tables_keep_every_rule_of_a_sink(shared_database: str, variant: Variant) -> None:
    assert keeps(shared_database, variant, CHECKS) > 30


@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(variant, id=name, marks=() if "2pc" in name else pytest.mark.campaign)
        for name, variant in GROUPED.items()
        # Under wal a task's partition chooses its table: a key that comes again in another task
        # would be in both.
        if variant.own_register and variant.write == "append"
    ],
)
def test_a_crash_at_any_point_loses_and_doubles_nothing(
    shared_database: str, variant: Variant
) -> None:
    with ForkServer() as fork_server:
        check_crashes(partial(open_group, shared_database, variant), fork_server, passages=1)


def group_task(partition: int = 0) -> Task:
    return Task("abcd" * 4, JOB, 1, 0, partition, "ab")


@pytest.mark.parametrize("variant", [GROUPED["2pc-append"]], ids=["2pc"])
def test_a_tasks_rows_may_refer_to_those_it_wrote_before(referring: GroupHarness) -> None:
    group = PostgresGroup({n: (o, SCHEMA) for n, o in enumerate(referring.both)})
    writer = group.writer(group_task())
    for number in range(3):
        writer.write(0, batch_of(rows(10 * number, 3)))
        writer.write(1, batch_of(rows(10 * number, 2)))
    committable = writer.pre_commit()
    assert committable is not None
    assert committable.rows == 15
    assert referring.prepared() == [str(committable.handle)]
    assert referring.read() == []
    group.committer(co_commit=False).commit([committable])
    assert len(referring.read()) == 15
    assert referring.prepared() == []


def test_a_task_prepares_one_transaction_for_the_rows_of_both_tables(shared_database: str) -> None:
    with open_group(shared_database, GROUPED["2pc-append"]) as harness:
        check_one_transaction(harness)


def in_two_transactions(plant: Plant) -> None:
    class Two:
        """Each table's rows are prepared in a transaction of their own; one of them is told."""

        def __init__(self, tables: Mapping[int, SinkTable], task: Task) -> None:
            self._writers = [
                TwoPhaseWriter(table, replace(task, attempt=f"{n:x}"))
                for n, table in tables.items()
            ]

        def write(self, sink: int, batch: pa.RecordBatch) -> None:
            self._writers[sink].write(batch)

        def pre_commit(self) -> Committable | None:
            first, _ = (writer.pre_commit() for writer in self._writers)
            return first

    plant(of_groups, "GroupTwoPhaseWriter", Two)


def without_one_tables_rows(plant: Plant) -> None:
    right = GroupTwoPhaseWriter.write

    def write(self: GroupTwoPhaseWriter, sink: int, batch: pa.RecordBatch) -> None:
        if sink == 0:
            right(self, sink, batch)

    plant(GroupTwoPhaseWriter, "write", write)


@pytest.mark.parametrize(
    ("bug", "found"),
    [
        (in_two_transactions, "2 transactions are prepared"),
        (without_one_tables_rows, "3 of 6 rows are there"),
    ],
)
def test_a_group_in_two_transactions_or_without_one_tables_rows_is_found(
    shared_database: str, bug: Bug, found: str
) -> None:
    with (
        open_group(shared_database, GROUPED["2pc-append"]) as harness,
        planted(bug, match=found),
    ):
        check_one_transaction(harness)


@pytest.mark.parametrize("variant", [GROUPED["2pc-append"]], ids=["2pc"])
def test_a_row_that_refers_to_nothing_takes_the_whole_task_with_it(
    referring: GroupHarness,
) -> None:
    group = PostgresGroup({n: (o, SCHEMA) for n, o in enumerate(referring.both)})
    writer = group.writer(group_task())
    writer.write(0, batch_of(rows(0, 3)))
    writer.write(1, batch_of(rows(3, 1)))
    with pytest.raises((DataError, TargetError), match="foreign key"):
        writer.pre_commit()
    writer.abort()
    assert referring.prepared() == []
    assert referring.read() == []


@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(v, id=n)
        for n, v in GROUPED.items()
        if v.protocol == "wal" and v.write == "append"
    ],
)
def test_under_wal_rows_may_refer_to_any_of_the_epoch(referring: GroupHarness) -> None:
    case = Case(referring)
    case.run().epoch(0, rows(0, 3), rows(0, 2))  # the second task's table refers to the first's
    assert sorted(referring.read()) == sorted([*rows(0, 3), *rows(0, 2)])
    with pytest.raises((DataError, TargetError), match="foreign key"):
        case.run().epoch(1, rows(10, 3), rows(20, 1))
    assert len(referring.read()) == 5, "an epoch of which one table's rows were refused is in none"
    run = case.run()
    run.begin(1)
    assert referring.leftovers(JOB) == []
    case.close()


@pytest.mark.parametrize("variant", [GROUPED["2pc-append"]], ids=["2pc"])
def test_a_table_without_rows_costs_nothing_and_one_handle_holds_the_rest(
    shared_database: str, variant: Variant
) -> None:
    with open_group(shared_database, variant) as harness, Case(harness) as case:
        case.run().epoch(0, [(1, "odd")], [(2, "even")])
        assert sorted(harness.read()) == [(1, "odd"), (2, "even")]


@pytest.mark.parametrize("variant", [FOREIGN_WAL], ids=["wal"])
def test_an_epoch_of_both_tables_is_one_prepared_transaction(
    shared_database: str, variant: Variant
) -> None:
    with open_group(shared_database, variant) as harness, Case(harness) as case:
        run = Run(case.sink(), JOB, store=MemoryRegister())
        shares = [run.task(0, n, rows(10 * n, 2)) for n in range(4)]
        made = run.committer.compose([share.committable for share in shares])  # type: ignore
        assert harness.prepared() == [str(committable.handle) for committable in made]
        assert [committable.rows for committable in made] == [8]
        run.committer.commit(made)
        assert len(harness.read()) == 8


def test_a_second_table_that_was_altered_keeps_the_epoch_from_the_first(
    shared_database: str,
) -> None:
    with open_group(shared_database, GROUPED["wal-append"]) as harness, Case(harness) as case:
        run = case.run()
        shares = [run.task(0, n, rows(10 * n, 2)) for n in range(2)]
        harness.db.execute(f"alter table {harness.second} alter value type int using 1")
        with pytest.raises(SchemaError, match=f"{harness.second}.* was altered"):
            run.commit(0, shares)
        assert harness.db.execute(f"select count(*) from {harness.table}").fetchone() == (0,)


def test_tables_are_filled_in_the_order_of_the_list_whatever_their_numbers() -> None:
    given = {"url": "postgresql://nowhere/db", "protocol": "wal"}
    parent, child = (PostgresOptions.parse({**given, "dbtable": t}) for t in ("parent", "child"))
    group = PostgresGroup({2: (parent, SCHEMA), 0: (child, SCHEMA)})
    staged = [
        Committable(Task("abcd" * 4, JOB, 1, 0, number * STRIDE, "ab").handle, 1, "")
        for number in (0, 2)
    ]
    tables = [str(part.table.options.dbtable) for part in group.tables.parts(staged)]
    assert [name.strip('"') for name in tables] == ["parent", "child"]


def test_staged_rows_of_an_unknown_sink_are_not_taken_for_anothers() -> None:
    options = PostgresOptions.parse({"url": "postgresql://nowhere/db", "dbtable": "t"})
    group = PostgresGroup(dict.fromkeys(range(2), (options, SCHEMA)))
    made = Task("abcd" * 4, JOB, 1, 0, 2 * STRIDE, "a").handle
    with pytest.raises(ProtocolError, match="sink number 2"):
        group.tables.parts([Committable(made, 1, "", (("protocol", "wal"),))])


@pytest.mark.parametrize(
    ("changed", "shared"),
    [
        ({}, True),
        ({"dbtable": "other", "batchsize": "10", "createtable": "true"}, True),
        ({"locktimeout": "30", "connecttimeout": "20", "password": "secret"}, True),
        ({"url": "postgresql://here:5432/db"}, True),
        ({"url": "postgresql://here:5433/db"}, False),
        ({"url": "postgresql://elsewhere/db"}, False),
        ({"user": "other"}, False),
        ({"stateschema": "other"}, False),
        ({"protocol": "2pc"}, False),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else None,
)
def test_sinks_share_transactions_where_server_role_and_protocol_are_the_same(
    changed: dict[str, str], shared: bool
) -> None:
    given = {"url": "postgresql://here/db", "dbtable": "t", "protocol": "wal"}
    one, other = (PostgresOptions.parse(g) for g in (given, {**given, **changed}))
    assert (transactions_of(one) == transactions_of(other)) is shared


def test_idempotent_sinks_share_no_transaction() -> None:
    given = {"url": "postgresql://here/db", "dbtable": "t", "protocol": "idempotent"}
    upsert = PostgresOptions.parse({**given, "write": "upsert", "key": "id"})
    assert transactions_of(upsert) is None


def test_a_tables_dead_letters_are_not_those_that_other_sinks_gave_it_as_rows() -> None:
    options = PostgresOptions.parse({"url": "postgresql://nowhere/db", "dbtable": "t"})
    handle = Task("abcd" * 4, JOB, 1, 0, STRIDE, "ab").handle
    extra = noted([Count(0, 5, 3, 1.0), Count(1, 10, 2, 1.0)])
    part = Part(SinkTable(options, SCHEMA), (Committable(handle, 10, "", extra),))
    assert (part.dead, part.good) == ({handle: 2}, 8)
