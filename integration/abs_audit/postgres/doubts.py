"""Finds unfinished writes in a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import psycopg
from psycopg import Connection, sql

from abs_audit.postgres.catalog import CatalogTable, read_by
from abs_audit.report import LeftBehind, Lock, OpenDecision, Prepared, Staging
from abs_core.codec import state_from_text
from abs_core.errors import CorruptionError
from abs_core.model import HandleName, JobState
from abs_core.sinkmap import number_of
from abs_sinks.postgres.apply.target import within

GID_PREFIX = "abs1:"
STAGING_PREFIXES = ("staged_", "s_")
"""A table of the state schema with another name is staging too, if its comment names a handle."""

COUNTED_UP_TO = 1_000_000


def look(connection: Connection[Any], table: CatalogTable, stateschema: str) -> LeftBehind:
    """Inspect prepared transactions, staging tables, registers, and locks on the table.

    Covers this database only. What a register of the state schema shows to be of other tables does not
    count; staging tables of a job whose register is elsewhere do. The connection must be in autocommit
    mode; unforeseen errors of the driver pass unmapped.
    """
    unchecked: list[str] = []
    prepared, foreign = _prepared(connection, table)
    database = connection.info.dbname
    places = {within(database, schema, name) for schema, name in read_by(connection, table)}
    states = _states(connection, stateschema, unchecked)
    others = {
        (state.register, number)
        for _, _, state in states
        for number, target in _targets(state).items()
        if target.startswith("postgres:") and target.partition("/")[2] not in places
    }
    staging = _staging(connection, stateschema, others, unchecked)
    return LeftBehind(
        prepared=prepared,
        foreign_prepared=foreign,
        staging=staging,
        locks=_locks(connection, table),
        decisions=_decisions(states, others),
        unchecked=tuple(unchecked),
    )


def _prepared(connection: Connection[Any], table: CatalogTable) -> tuple[tuple[Prepared, ...], int]:
    rows = connection.execute(_PREPARED, {"oids": list(table.oids)}).fetchall()
    ours = [Prepared(gid, float(age), on) for gid, age, on in rows if gid.startswith(GID_PREFIX)]
    return tuple(ours), len(rows) - len(ours)


def _locks(connection: Connection[Any], table: CatalogTable) -> tuple[Lock, ...]:
    rows = connection.execute(_LOCKS, {"oids": list(table.oids), "writes": list(_WRITES)})
    return tuple(Lock(mode, holder, writes) for mode, holder, writes in rows)


def _staging(
    connection: Connection[Any],
    stateschema: str,
    others: Container[tuple[str, int]],
    unchecked: list[str],
) -> tuple[Staging, ...]:
    tables = connection.execute(_TABLES, {"schema": stateschema}).fetchall()
    staged = []
    for name, comment in tables:
        handle = HandleName.parse(comment)
        if not name.startswith(STAGING_PREFIXES) and handle is None:
            continue
        if handle is not None and (handle.register, number_of(handle)) in others:
            continue
        table = sql.Identifier(stateschema, name)
        try:
            count = connection.execute(_COUNT.format(table=table, most=sql.Literal(COUNTED_UP_TO)))
            row = count.fetchone()
        except psycopg.errors.UndefinedTable:
            continue  # dropped meanwhile: its epoch is over
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.LockNotAvailable) as error:
            unchecked.append(f"{table.as_string()}: {error.diag.message_primary}")
            row = None
        staged.append(Staging(table.as_string(), row[0] if row else None, COUNTED_UP_TO))
    return tuple(staged)


def _decisions(
    states: Sequence[tuple[str, str, JobState]], others: Container[tuple[str, int]]
) -> tuple[OpenDecision, ...]:
    return tuple(
        OpenDecision(job, decision.epoch, target)
        for job, target, state in states
        for decision in state.open
        if any((state.register, number) not in others for number in _targets(state))
    )


def _targets(state: JobState) -> dict[int, str]:
    """The target of each sink of a job, by number."""
    return {sink.number: sink.target for sink in state.sinks} or {0: state.target}


def _states(
    connection: Connection[Any], stateschema: str, unchecked: list[str]
) -> list[tuple[str, str, JobState]]:
    """Job, target and state of each register."""
    register = sql.Identifier(stateschema, "register")
    try:
        rows = connection.execute(_REGISTERS.format(register=register)).fetchall()
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        return []  # no sink has ever run with this state schema
    except psycopg.errors.InsufficientPrivilege as error:
        unchecked.append(f"{register.as_string()}: {error.diag.message_primary}")
        return []
    states = []
    for job, target, text, is_open in rows:
        try:
            state = state_from_text(text, f"{register.as_string()} row {job!r}")
        except CorruptionError as error:
            if is_open:
                unchecked.append(str(error))
            continue
        states.append((job, target, state))
    return states


# A prepared transaction's locks have no pid. Its virtual id is the session's that prepared it, or
# -1/xid after a restart (twophase.c); the lock on its own transaction id leads from one to the other.
_PREPARED = """
select p.gid, extract(epoch from clock_timestamp() - p.prepared),
       exists (select 1 from pg_locks own join pg_locks l using (virtualtransaction)
                where own.locktype = 'transactionid' and own.transactionid = p.transaction
                  and own.pid is null and l.pid is null and l.locktype = 'relation'
                  and l.relation = any(%(oids)s) and l.mode <> 'AccessShareLock')
  from pg_prepared_xacts p where p.database = current_database() order by p.prepared, p.gid
"""

# Manual, 13.3.1: who changes rows holds the first, at least; the others rewrite or empty a table.
_WRITES = ("RowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock")

# Vacuum takes such locks too, and changes no row.
_LOCKS = """
with prepared as (
    select p.gid, own.virtualtransaction from pg_prepared_xacts p
      join pg_locks own on own.locktype = 'transactionid' and own.transactionid = p.transaction
     where own.pid is null)
select distinct l.mode,
       coalesce('prepared transaction ' || p.gid, 'process ' || l.pid
                || coalesce(' (' || nullif(a.application_name, '') || ')', ''),
                l.virtualtransaction),
       l.mode = any(%(writes)s)
  from pg_locks l
  left join prepared p on l.pid is null and p.virtualtransaction = l.virtualtransaction
  left join pg_stat_activity a on a.pid = l.pid
 where l.locktype = 'relation' and l.relation = any(%(oids)s)
   and l.database = (select oid from pg_database where datname = current_database())
   and l.pid is distinct from pg_backend_pid()
   and a.backend_type is distinct from 'autovacuum worker'
 order by 1, 2
"""

_TABLES = """
select c.relname, coalesce(obj_description(c.oid, 'pg_class'), '')
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where n.nspname = %(schema)s and c.relkind in ('r', 'p') order by 1
"""

_COUNT = sql.SQL("select count(*) from (select 1 from {table} limit {most}) counted")

_REGISTERS = sql.SQL(
    "select job, target, state::text, state -> 'open' is distinct from '[]'::jsonb "
    "from {register} order by job"
)
