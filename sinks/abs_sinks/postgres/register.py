"""The register in PostgreSQL: one row per job, changed by ``UPDATE ... WHERE version = ...``.

A change is durable when its call returns: sessions never have synchronous_commit off (``connection``).
Each call is one statement in its own transaction. After a lost reply ``load`` tells the outcome, once
the server has ended the statement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg import sql
from psycopg.errors import FeatureNotSupported, UntranslatableCharacter

from abs_clients.postgres.connection import Tag
from abs_clients.postgres.errors import translate_errors
from abs_clients.postgres.metadata import MetadataSchema
from abs_clients.postgres.pool import leased
from abs_core.codec import state_from_text, state_to_text
from abs_core.contracts import Conflict, Inventory, Stored, Version, in_time
from abs_core.errors import ContentionError, RefusedError
from abs_core.model import JobState
from abs_core.registers import check_finished
from abs_sinks.postgres.options import PostgresOptions

# Idle sessions hold nothing, and are left alone. Other roles' sessions cannot be ended, and show no
# state; two roles have separate registers.
_IN_FLIGHT = """
select pid, application_name from pg_stat_activity
 where datname = current_database() and pid <> pg_backend_pid()
   and application_name like 'abs:%' and xact_start is not null
"""

# Checked again before ending, since a pid can be reused; materialized, so that the check comes first.
_TERMINATE = """
with zombie as materialized (
    select pid from pg_stat_activity
     where pid = any(%s) and application_name like %s and xact_start is not null)
select count(*) filter (where pg_terminate_backend(pid, %s)) from zombie
"""

_WAIT_MS = 2000


def terminate_older(options: PostgresOptions, state: JobState) -> int:
    """End the sessions in a transaction of lower generations; returns their number.

    A zombie's locks then do not block its successor. Safety does not need it: that is the register's.

    Raises:
        TargetError: the server did not answer, or refused.
    """
    with leased(options.server, doing="ending sessions of superseded runs") as connection:
        pids = [
            pid
            for pid, name in connection.execute(_IN_FLIGHT)
            if (tag := Tag.parse(name))
            and tag.register == state.register
            and tag.generation < state.generation
        ]
        if not pids:
            return 0
        row = connection.execute(_TERMINATE, (pids, f"abs:{state.register}:%", _WAIT_MS)).fetchone()
        return 0 if row is None else int(row[0])


T = TypeVar("T")

SWAP_TRIES = 3

_LOAD = """
select job, state::text, version::text, extract(epoch from changed)::float8 from {register}
"""

_OTHERS = """
select distinct split_part(job, '@', 1) from {register}
 where target = {target} and split_part(job, '@', 1) <> split_part({job}, '@', 1)
 order by 1
"""

_INSERT = """
insert into {register} (job, version, target, state)
values ({job}, 1, {target}, {state}::jsonb)
on conflict (job) do nothing returning version::text
"""

# The register id is compared too: after `retire` versions restart under another id, and a request
# delayed since then must not match its version again.
_UPDATE = """
update {register}
   set version = version + 1, target = {target}, state = {state}::jsonb, changed = now()
 where job = {job} and version = {version} and state ->> 'register' = {id}
returning version::text
"""


class PostgresRegister(Inventory):
    """A ``RegisterStore`` in the table ``register`` of the state schema; the first write creates it."""

    option = "stateschema"

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._schema = options.state

    def load(self, job: str) -> Stored | None:
        doing = f"reading the register of job {job}"
        states = self._stored(self._rows(doing, _LOAD + " where job = {job}", job=job))
        return states[0] if states else None

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState, deadline: float | None = None
    ) -> Version | Conflict:
        def once() -> Version | Conflict:
            with leased(self._options.server) as connection:
                self._schema.ensure(connection)
                with translate_errors(f"writing the register of job {job}"):
                    in_time(job, deadline)  # to connect, or to end others' sessions, takes time
                    try:
                        row = connection.execute(swapping(self._schema, expected, state)).fetchone()
                    except (UntranslatableCharacter, FeatureNotSupported) as error:
                        encoding = connection.info.parameter_status("server_encoding")
                        raise RefusedError(
                            f"The database's encoding ({encoding}) lacks a character of the register"
                            f" of job {job}: of the checkpoint's location ({state.checkpoint}), or of"
                            " another name.",
                            remedy="take a checkpointLocation of ASCII characters, or a database of"
                            " encoding UTF8.",
                        ) from error
            return Conflict() if row is None else str(row[0])

        return persistently(self._options, state, once)

    def jobs(self) -> Sequence[Stored]:
        """Every job in this state schema, sorted by name."""
        return self._stored(self._rows("listing the registers", _LOAD + " order by job"))

    def others_on(self, target: str, job: str) -> Sequence[str]:
        """See ``Inventory``."""
        rows = self._rows("looking for other jobs' registers", _OTHERS, target=target, job=job)
        return [row[0] for row in rows]

    def retire(self, job: str) -> bool:
        """See ``Inventory``."""
        stored = self.load(job)
        if stored is None:
            return False
        check_finished(stored.state)
        query = self._sql(
            "delete from {register} where job = {job} and version = {version}",
            job=job,
            version=int(stored.version),
        )
        with leased(
            self._options.server, doing=f"deleting the register of job {job}"
        ) as connection:
            if connection.execute(query).rowcount == 1:
                return True
        raise ContentionError(
            "The job's register has changed in the meantime: the job is running.",
            job=job,
            remedy="stop the job, then retire it.",
        )

    def place(self, job: str) -> str:
        """Where the job's row is, for messages."""
        return f"{self._where(job)} at {self._options.address.label}"

    def _rows(self, doing: str, query: LiteralString, **values: str) -> list[tuple[Any, ...]]:
        """The rows of a query; none if there is no table yet."""
        with leased(self._options.server, doing=doing) as connection:
            try:
                return connection.execute(self._sql(query, **values)).fetchall()
            except psycopg.errors.UndefinedTable:
                self._schema.forget()
                return []

    def _sql(self, text: LiteralString, **values: str | int) -> sql.Composed:
        # Literals, not parameters: an identifier may contain a %.
        return sql.SQL(text).format(register=self._schema.table("register"), **values)

    def _stored(self, rows: Sequence[tuple[Any, ...]]) -> list[Stored]:
        # Of another job the compare-and-set would look for another row, and never find the version.
        return [
            Stored(state_from_text(text, self._where(job), job), version, changed)
            for job, text, version, changed in rows
        ]

    def _where(self, job: str) -> str:
        return f"{self._schema.table('register').as_string()} row {job!r}"


def swapping(schema: MetadataSchema, expected: Version | None, state: JobState) -> sql.Composed:
    """The compare-and-set statement; it returns the new version, or no row."""
    return sql.SQL(_INSERT if expected is None else _UPDATE).format(
        register=schema.table("register"),
        job=state.job,
        target=state.target,
        state=state_to_text(state),
        version=None if expected is None else int(expected),
        id=state.register,
    )


def persistently(options: PostgresOptions, state: JobState, swap: Callable[[], T]) -> T:
    """Call ``swap``; if a lower generation's transaction blocks it, end that and retry.

    Raises:
        ContentionError: something else blocks it for longer than ``locktimeout``.
    """
    for _ in range(SWAP_TRIES - 1):
        try:
            return swap()
        except ContentionError:
            if not terminate_older(options, state):
                raise
    return swap()
