"""The sink's preflight of server, role and table: pure functions of the facts that it reads.

An ERROR would break the guarantee or stop the job. A WARNING is for a person to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from psycopg import Connection

from abs_clients.arrow import alike
from abs_clients.postgres.connection import connect
from abs_clients.postgres.errors import translate_errors
from abs_clients.postgres.metadata import exists
from abs_core.errors import AbsError, DataError, PreflightError, SchemaError
from abs_core.model import Finding
from abs_sinks.postgres import letter_table
from abs_sinks.postgres.apply.newcolumns import adding, for_administrator
from abs_sinks.postgres.apply.target import identity_of, plan_for
from abs_sinks.postgres.apply.write import write_of
from abs_sinks.postgres.check.facts import (
    Pooling,
    ServerFacts,
    TableFacts,
    Way,
    pooling,
    server_facts,
    table_facts,
    way_of,
)
from abs_sinks.postgres.check.ties import findings_of_ties
from abs_sinks.postgres.columns.plan import CopyPlan, left_empty
from abs_sinks.postgres.columns.table import CatalogTable, read_table
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.prepared import OR_ALONE, OR_WAL, RAISE
from abs_sinks.postgres.register import PostgresRegister

OLDEST_VERSION = 140000
"""PostgreSQL 14, the oldest with the functions and catalogs used here."""

OLD_PREPARED_SECONDS = 3600.0
"""Age from which a prepared transaction was probably forgotten; it holds back vacuum."""

VERIFIED = ("verify-ca", "verify-full")
"""Values of sslmode with which libpq checks the server's certificate before it sends a password."""

LOCKS_PER_STAGING_TABLE = 4
"""The table, its TOAST table and index, and its type, while an epoch is applied."""


def preflight(
    options: PostgresOptions,
    schema: pa.Schema | None,
    job: str | None,
    tasks: int | None,
    *,
    composes: bool = False,
    if_missing: Callable[[], None] = lambda: None,
) -> list[Finding]:
    """Check server, role, table and registers; changes nothing.

    Args:
        schema: of the input; None: it is not checked whether the input fits the table.
        job: the register key; None: other jobs' registers are not checked.
        composes: whether the register is elsewhere, so that ``wal`` prepares transactions.
        if_missing: see ``Sink``.

    Raises:
        IdentityError: the table is missing, and the job has committed to it.
        TargetError: the server does not answer, or refuses.
    """
    connection = connect(options.server)
    with connection, translate_errors("looking at the server"):
        server = server_facts(connection, options)
        findings = [
            *findings_of_server(server, options, tasks, composes=composes),
            *findings_of_pooling(pooling(connection, options)),
            *findings_of_way(way_of(connection)),
        ]
        try:
            if schema is None:
                table = read_table(connection, options.dbtable)
            else:
                write = plan_for(connection, options, schema, create=False, if_missing=if_missing)
                findings += write.findings(connection)
                table = write.plan.table
                findings += findings_of_plan(write.plan, options)
                findings += findings_of_new_columns(connection, write.plan)
        except (DataError, PreflightError) as error:
            return [*findings, _missing_table(error, options)]
        findings += findings_of_table(table, table_facts(connection, table), server, options)
        findings += findings_of_ties(table, options)
        findings += findings_of_dead_letters(connection, options)
        identity = identity_of(connection, options, table)
    if job and identity is not None and server.state_exists and server.may_use_state:
        register = PostgresRegister(options)
        registered = register.load(job) is not None
        findings += findings_of_others(register.others_on(identity, job), registered, table)
    return findings


def findings_of_server(
    server: ServerFacts, options: PostgresOptions, tasks: int | None, *, composes: bool = False
) -> Iterator[Finding]:
    if server.version < OLDEST_VERSION:
        yield Finding.error(
            f"The server is too old ({server.version}).", "use PostgreSQL 14 or newer."
        )
    if server.standby:
        yield Finding.error(
            "The server accepts no writes: it is a standby.",
            "connect to the primary (target_session_attrs=read-write in the url).",
        )
    elif server.read_only:
        yield Finding.error(
            f"Sessions of role {server.role} are read-only: default_transaction_read_only is on.",
            "ALTER ROLE ... (or DATABASE ...) SET default_transaction_read_only = off.",
        )
    yield from _findings_of_timeouts(server)
    if not server.fsync or not server.full_page_writes:
        yield Finding.warning(
            "fsync or full_page_writes is off: a crash of the machine can lose or damage committed "
            "rows.",
            "turn both on, unless the data may be lost.",
        )
    if server.asynchronous:
        yield Finding.note("synchronous_commit is off by default; the sink's sessions turn it on.")
    yield from _findings_of_state_schema(server, options)
    if options.protocol == "2pc":
        yield from _findings_of_prepared(server, tasks, OR_WAL)
    elif options.protocol == "wal" and composes:
        yield from _findings_of_prepared(server, 1, OR_ALONE)
    if server.oldest_prepared_s > OLD_PREPARED_SECONDS:
        yield Finding.warning(
            f"The oldest prepared transaction of the server ({server.oldest_prepared}) is "
            f"{server.oldest_prepared_s / 3600:.1f} hours old: it holds locks and holds back vacuum.",
            "find out who prepared it, then COMMIT PREPARED or ROLLBACK PREPARED (`abs in-doubt "
            "list` shows those of abs-sinks).",
        )
    if options.protocol == "idempotent" and not server.may_create_temporary:
        yield Finding.error(
            f"Role {server.role} may not create temporary tables.",
            f"GRANT TEMPORARY ON DATABASE ... TO {server.role}.",
        )
    if tasks is not None and tasks + 3 > server.max_connections:
        yield Finding.warning(
            f"{tasks} tasks need as many connections; the server allows {server.max_connections}.",
            "coalesce the data frame, or raise max_connections.",
        )
    needed = LOCKS_PER_STAGING_TABLE * (tasks or 0)
    if options.protocol == "wal" and needed > server.max_locks / 2:
        yield Finding.warning(
            f"Applying {tasks} staging tables takes about {needed} locks; the server has room for "
            f"{server.max_locks}.",
            "coalesce the data frame, or raise max_locks_per_transaction.",
        )


def _findings_of_timeouts(server: ServerFacts) -> Iterator[Finding]:
    for name, milliseconds, work in (
        ("statement_timeout", server.statement_ms, "COPY of a task's share of an epoch"),
        ("transaction_timeout", server.transaction_ms, "whole transaction of a task"),
    ):
        if milliseconds:
            yield Finding.warning(
                f"{name} is {milliseconds / 1000:g} s for role {server.role}: the server ends the "
                f"{work} if it takes longer, and the job then fails at each attempt.",
                f"ALTER ROLE ... SET {name} = 0 for the job's role, or keep epochs small.",
            )


def _findings_of_prepared(
    server: ServerFacts, tasks: int | None, otherwise: str
) -> Iterator[Finding]:
    if server.max_prepared == 0:
        yield Finding.error(
            "Prepared transactions are disabled (max_prepared_transactions = 0). Protocol 2pc, and "
            "wal with a register in another system, need them.",
            f"{RAISE}, or {otherwise}.",
        )
        return
    wanted = max(1, tasks or 1)
    free = server.max_prepared - server.prepared
    if server.max_prepared < wanted:
        yield Finding.error(
            f"An epoch has {wanted} tasks, and the server has room for {server.max_prepared} "
            "prepared transactions.",
            f"{RAISE}, or {otherwise}. Or coalesce the data frame.",
        )
    elif free < 2 * wanted:
        # Losing attempts stay prepared until their epoch is finished.
        yield Finding.warning(
            f"An epoch has {wanted} tasks, and {free} of {server.max_prepared} prepared "
            "transactions are free: retried or speculative tasks may find none.",
            f"{RAISE}, or {otherwise}.",
        )


def _findings_of_state_schema(server: ServerFacts, options: PostgresOptions) -> Iterator[Finding]:
    name = options.stateschema
    if not server.state_exists:
        if not server.may_create_schema:
            yield Finding.error(
                f"The schema {name} for registers and markers does not exist, and role "
                f"{server.role} may not create it.",
                f"CREATE SCHEMA {name} AUTHORIZATION {server.role}; as the database's owner.",
            )
    elif not (server.may_use_state and server.may_create_in_state):
        yield Finding.error(
            f"Role {server.role} lacks rights on the schema {name}, which holds the registers.",
            f"GRANT USAGE, CREATE ON SCHEMA {name} TO {server.role}, and SELECT, INSERT, UPDATE, "
            "DELETE on the tables in it.",
        )


def findings_of_way(way: Way) -> Iterator[Finding]:
    """libpq sends a password in clear to any server that asks for it so."""
    if way.password and way.in_clear and not (way.local or way.sslmode in VERIFIED):
        yield Finding.warning(
            f"Whoever answers at {way.host} can ask for the password in clear: "
            f"sslmode={way.sslmode} does not check who the server is, and require_auth allows it.",
            "set sslmode=verify-full and sslrootcert in the url; or, with libpq 16 or newer, "
            "require_auth=scram-sha-256.",
        )


def findings_of_pooling(mode: str) -> Iterator[Finding]:
    if mode in (Pooling.TRANSACTION, Pooling.STATEMENT):
        yield Finding.error(
            f"A connection pooler assigns server connections per {mode} (pgbouncer's "
            f"pool_mode={mode}), so session settings are lost. Lock timeouts, durable commits and "
            "the end of zombie sessions depend on them.",
            "connect to the server itself, or to a pool with pool_mode=session.",
        )
    elif mode == Pooling.SESSION:
        yield Finding.note(
            "The connection goes through a pooler that keeps sessions, which is sufficient."
        )


def findings_of_table(
    table: CatalogTable, facts: TableFacts, server: ServerFacts, options: PostgresOptions
) -> Iterator[Finding]:
    needed = (*write_of(options).rights, *(("UPDATE",) if options.key else ()))
    lacking = [
        right
        for right, granted in (
            ("INSERT", facts.may_insert),
            ("UPDATE", facts.may_update),
            ("SELECT", facts.may_select),
            ("DELETE", facts.may_delete),
        )
        if right in needed and not granted
    ]
    if lacking:
        yield Finding.error(
            f"Role {server.role} lacks {', '.join(lacking)} on table {table.label}.",
            f"GRANT {', '.join(lacking)} ON {table.label} TO {server.role}.",
        )
    if facts.deferred and options.letters is not None and options.protocol == "2pc":
        yield Finding.error(
            f"Constraints of table {table.label} are INITIALLY DEFERRED ({', '.join(facts.deferred)}): "
            "the server checks them at PREPARE, when it is too late for a dead letter.",
            "set protocol=wal; or make them DEFERRABLE INITIALLY IMMEDIATE; or leave deadletter out.",
        )
    if hidden := table.hidden():
        yield Finding.of(hidden)
    if not table.logged:
        yield Finding.warning(
            f"Table {table.label} is UNLOGGED: a crash of the server empties it, and committed rows "
            "are not written again.",
            f"ALTER TABLE {table.label} SET LOGGED.",
        )
    if facts.insert_triggers:
        names = ", ".join(facts.insert_triggers)
        again = options.protocol == "idempotent"
        yield (Finding.warning if again else Finding.note)(
            f"Triggers fire for inserted rows ({names})"
            + ("; they fire again when an epoch is written again." if again else "."),
            "make sure that they may be repeated." if again else "",
        )
        if options.protocol == "2pc":
            yield Finding.note(
                "A transaction whose trigger uses NOTIFY or a temporary table cannot be prepared: each "
                "epoch would fail. Then use protocol=wal."
            )
    if facts.has_rules and options.protocol != "2pc":  # COPY follows no rules
        yield Finding.warning(
            f"Table {table.label} has rules. They apply to the INSERT of protocol={options.protocol}: "
            "DO INSTEAD can divert rows, which then are not in the table.",
            "see pg_rules; drop those that must not apply, or take protocol=2pc to append.",
        )


def findings_of_dead_letters(
    connection: Connection[Any], options: PostgresOptions
) -> Iterator[Finding]:
    name = options.letters
    if name is None:
        return
    if not exists(connection, str(name)):
        yield Finding.note(f"Table {name} for dead letters does not exist; it will be created.")
        return
    try:
        letter_table.check(connection, name)
    except SchemaError as error:
        yield Finding.of(error)
    query = "select has_table_privilege(to_regclass(%s), 'INSERT')"
    if connection.execute(query, (str(name),)).fetchone() != (True,):
        yield Finding.error(
            f"This role may not insert into table {name} (option deadletter).",
            f"GRANT INSERT ON {name} TO ...",
        )


def findings_of_new_columns(connection: Connection[Any], plan: CopyPlan) -> Iterator[Finding]:
    if not plan.added:
        return
    query = "select pg_has_role(relowner, 'USAGE') from pg_class where oid = %s"
    if connection.execute(query, (plan.table.oid,)).fetchone() != (True,):
        yield Finding.error(
            f"This role may not add columns to table {plan.table.label}: it does not own it.",
            for_administrator(plan),
        )
        return
    yield Finding.note(
        f"Table {plan.table.label} lacks columns of the input, which are added: "
        f"{adding(plan).as_string()}; rows that are there have NULL in them."
    )


def findings_of_plan(plan: CopyPlan, options: PostgresOptions) -> Iterator[Finding]:
    written = {planned.source for planned in plan.columns}
    ignored = [name for name in plan.schema.names if name not in written]
    ignored = [name for name in ignored if not alike(name, options.exceptcolumns)]
    if options.schemachange == "ignore" and ignored:
        yield Finding.warning(
            f"Table {plan.table.label} lacks columns of the input, which are not written "
            f"(schemachange=ignore): {', '.join(ignored)}.",
            "add them to the table, or set schemachange=add, if they should be kept.",
        )
    if empty := left_empty(plan):
        yield Finding.note(
            f"The input does not have these columns of table {plan.table.label}, so they stay NULL: "
            f"{', '.join(empty)}.",
            "add them in Spark if they should be filled.",
        )


def findings_of_others(
    others: Sequence[str], continues: bool, table: CatalogTable
) -> Iterator[Finding]:
    if not others:
        return
    names = ", ".join(others[:5])
    if continues:
        yield Finding.note(f"Other jobs also write to table {table.label}: {names}.")
        return
    yield Finding.warning(
        f"This job is new, but another job has written to table {table.label}: {names}. If that was "
        "this job, and its checkpoint was deleted, everything would be written twice.",
        "if the checkpoint was deleted, restore it; if the job had another name, set that name again "
        f"(job={others[0]}); if the input is new, do nothing.",
    )


def _missing_table(error: AbsError, options: PostgresOptions) -> Finding:
    if options.createtable and "does not exist" in error.what:
        return Finding.note(f"Table {options.dbtable} does not exist; it will be created.")
    return Finding.of(error)
