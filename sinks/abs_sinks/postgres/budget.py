"""Prepared transactions that several sinks of one job take together, server by server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from abs_clients.postgres.errors import translate_errors
from abs_clients.postgres.pool import leased
from abs_core.model import Finding, Severity
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.preparing import OR_WAL, RAISE

_RAISE_OR_WAL = f"{RAISE}, or {OR_WAL}."

_ROOM = """
select pg_postmaster_start_time()::text || ' ' || current_setting('port'),
       current_setting('max_prepared_transactions')::int,
       (select count(*)::int from pg_prepared_xacts)
"""


@dataclass(frozen=True, slots=True)
class Room:
    """What one server has room for.

    Args:
        server: tells servers apart, whatever address leads to them.
        most: ``max_prepared_transactions``.
        taken: prepared now, by anybody.
    """

    server: str
    most: int
    taken: int


def judge_together(
    sinks: Sequence[tuple[str, PostgresOptions]], tasks: int | None
) -> list[Finding]:
    """Whether servers that several sinks with ``protocol=2pc`` write to have room for all of them.

    Args:
        sinks: name and options of every sink of the job that writes to PostgreSQL.
        tasks: how many tasks write an epoch; None: at least one.

    Raises:
        TargetError: a server cannot be asked.
    """
    rooms = [(name, _room(options)) for name, options in sinks if options.protocol == "2pc"]
    findings: list[Finding] = []
    for server in sorted({room.server for _, room in rooms}):
        names = [name for name, room in rooms if room.server == server]
        if len(names) > 1:
            room = next(room for _, room in rooms if room.server == server)
            findings += judge_room(names, room, tasks)
    return findings


def judge_room(names: Sequence[str], room: Room, tasks: int | None) -> list[Finding]:
    """The findings of one server; each sink alone is judged by its own preflight."""
    wanted = len(names) * max(1, tasks or 1)
    what = (
        f"An epoch has {max(1, tasks or 1)} tasks, each of which prepares a transaction for each of "
        f"the sinks {', '.join(names)} on one PostgreSQL server: {wanted} in all; "
    )
    if room.most < wanted:
        more = f"the server has room for {room.most} (max_prepared_transactions)."
        return [Finding(Severity.ERROR, what + more, _RAISE_OR_WAL)]
    if room.most - room.taken < 2 * wanted:
        more = f"{room.most - room.taken} of {room.most} are free: retried tasks may find none."
        return [Finding(Severity.WARNING, what + more, _RAISE_OR_WAL)]
    return []


def _room(options: PostgresOptions) -> Room:
    with leased(options.server) as connection, translate_errors("asking for prepared transactions"):
        row = connection.execute(_ROOM).fetchone()
    assert row is not None
    return Room(*row)
