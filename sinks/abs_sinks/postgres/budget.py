"""Prepared transactions that several sinks of one job take together, server by server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from abs_clients.postgres.errors import translate_errors
from abs_clients.postgres.pool import leased
from abs_core.model import Finding, Severity
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.preparing import RAISE

_REMEDY = f"{RAISE}, or set protocol=wal, which prepares one for an epoch, whatever its tasks."

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
    """Whether the servers that several sinks of one epoch write to have room for all of them.

    Args:
        sinks: name and options of every sink of the job that writes to PostgreSQL.
        tasks: how many tasks write an epoch; None: at least one.

    Raises:
        TargetError: a server cannot be asked.
    """
    rooms = [(name, options.protocol, _room(options)) for name, options in sinks]
    findings: list[Finding] = []
    for server in sorted({room.server for _, _, room in rooms}):
        protocols = {name: protocol for name, protocol, room in rooms if room.server == server}
        if len(protocols) > 1:
            room = next(room for _, _, room in rooms if room.server == server)
            findings += judge_room(protocols, room, max(1, tasks or 1))
    return findings


def judge_room(protocols: Mapping[str, str], room: Room, tasks: int) -> list[Finding]:
    """The findings of one server; each sink alone is judged by its own preflight.

    Args:
        protocols: of the sinks that write there beside others, by name. Under ``2pc`` each task
            prepares a transaction; under ``wal`` the commit process prepares one for the whole epoch.
        tasks: how many tasks write an epoch.
    """
    wanted = sum(tasks if protocol == "2pc" else 1 for protocol in protocols.values())
    names = ", ".join(f"{name} ({protocol})" for name, protocol in protocols.items())
    what = (
        f"An epoch of {tasks} tasks prepares {wanted} transactions on one PostgreSQL server, for the "
        f"sinks {names}; "
    )
    if room.most < wanted:
        more = f"the server has room for {room.most} (max_prepared_transactions)."
        return [Finding(Severity.ERROR, what + more, _REMEDY)]
    if room.most - room.taken < 2 * wanted:
        more = f"{room.most - room.taken} of {room.most} are free: retried tasks may find none."
        return [Finding(Severity.WARNING, what + more, _REMEDY)]
    return []


def _room(options: PostgresOptions) -> Room:
    with leased(options.server) as connection, translate_errors("asking for prepared transactions"):
        row = connection.execute(_ROOM).fetchone()
    assert row is not None
    return Room(*row)
