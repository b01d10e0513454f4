"""Two tables of one database as one sink of the contract: rows go to either, by one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from abs_clients.postgres.pool import close_idle
from abs_core.contracts import Committer, RegisterStore, Sink, Task, Writer
from abs_core.model import AND, Committable, Finding, Guarantee, JobState
from abs_core.sinkmap import STRIDE
from abs_sinks.postgres import PostgresGroup, PostgresOptions, PostgresSink
from abs_sinks.postgres.testing import VARIANTS, TableHarness, Variant
from abs_sinks.postgres.twophase import GroupTwoPhaseWriter
from abs_testing import SCHEMA, Row
from abs_testing.case import JOB, rows
from abs_testing.harness import batch_of

GROUPED = {
    name: VARIANTS[name]
    for name in (
        "2pc-append",
        "2pc-append-foreign-register",
        "wal-append",
        "wal-append-foreign-register",
        "wal-upsert",
    )
}


class GroupHarness(TableHarness):
    """As ``TableHarness``; a second table ``<table>_2`` has what the first one has not."""

    def __init__(self, url: str, variant: Variant) -> None:
        super().__init__(url, variant)
        key = " primary key" if variant.write == "upsert" else ""
        self.second = f"{self.table}_2"
        self.db.execute(f"create table {self.second} (id bigint{key}, value text)")
        self.tables.append(self.second)
        # A group's tasks do not know where the register is.
        self.keeps_last = variant.protocol == "2pc" or not variant.own_register
        other = replace(self.options, dbtable=type(self.options.dbtable).parse(self.second))
        self.both = (self.options, other)
        self.new_sink = partial(TwoTables, self.both, own_register=variant.own_register)

    def read(self) -> Sequence[Row]:
        query = f"select id, value from {self.table} union all select id, value from {self.second}"
        return self.db.execute(query).fetchall()

    def close(self) -> None:
        close_idle()
        for gid in self.prepared():
            self.db.execute(sql.SQL("rollback prepared {}").format(gid))
        self.db.execute(f"drop table if exists {self.second}")
        super().close()


def open_group(url: str, variant: Variant) -> closing[GroupHarness]:
    return closing(GroupHarness(url, variant))


def check_one_transaction(harness: GroupHarness) -> None:
    """A task's rows of both tables are prepared in one transaction, which has all of them."""
    group = PostgresGroup({n: (o, SCHEMA) for n, o in enumerate(harness.both)})
    writer = group.writer(Task("abcd" * 4, JOB, 1, 0, 0, "ab"))
    for number in range(2):
        writer.write(number, batch_of(rows(10 * number, 3)))
    committable = writer.pre_commit()
    assert committable is not None
    prepared = harness.prepared()
    assert prepared == [str(committable.handle)], f"{len(prepared)} transactions are prepared"
    group.committer(co_commit=False).commit([committable])
    there = len(harness.read())
    assert (committable.rows, there) == (6, 6), f"{there} of 6 rows are there"


class TwoTables(Sink):
    """A ``Sink`` of two sinks that share transactions, as an engine drives them.

    Under ``2pc`` a task's even ids go to the first table, and odd ones to the second; under ``wal`` the
    rows of even partitions and of odd ones.
    """

    def __init__(self, both: Sequence[PostgresOptions], *, own_register: bool) -> None:
        self._sinks = [PostgresSink(o, SCHEMA, co_commit=own_register) for o in both]
        self._group = PostgresGroup({n: (o, SCHEMA) for n, o in enumerate(both)})
        self._own = own_register

    @property
    def target_id(self) -> str:
        return AND.join(sink.target_id for sink in self._sinks)

    def writer(self, task: Task) -> Writer:
        if self._group.by_task:
            return _EvenAndOdd(self._group.writer(task))
        number = task.partition % 2
        partition = task.partition + number * STRIDE
        return self._sinks[number].writer(replace(task, partition=partition))

    def committer(self) -> Committer:
        return self._group.committer(co_commit=self._own)

    def register(self) -> RegisterStore:
        return self._sinks[0].register()

    def preflight(self, job: str, tasks: int | None = None) -> Sequence[Finding]:
        return [found for sink in self._sinks for found in sink.preflight(job, tasks)]

    def guarantee(self) -> Guarantee:
        return self._sinks[0].guarantee()

    def is_empty(self) -> bool:
        return all(sink.is_empty() for sink in self._sinks)

    def fence(self, state: JobState) -> None:
        for sink in self._sinks:
            sink.fence(state)

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()


class _EvenAndOdd:
    """A ``Writer`` of a group's writer."""

    def __init__(self, writer: GroupTwoPhaseWriter) -> None:
        self._writer = writer

    def write(self, batch: pa.RecordBatch) -> None:
        odd = pc.equal(pc.bit_wise_and(batch.column("id"), 1), 1)
        self._writer.write(0, batch.filter(pc.invert(odd)))
        self._writer.write(1, batch.filter(odd))

    def pre_commit(self) -> Committable | None:
        return self._writer.pre_commit()

    def abort(self) -> None:
        self._writer.abort()
