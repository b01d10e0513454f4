"""Checks that each server has room for the prepared transactions of all sinks of a job."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from abs_clients.postgres.pool import leased
from abs_core.model import Finding
from abs_sinks.postgres.options import PostgresOptions, transactions_of
from abs_sinks.postgres.prepared import RAISE

_REMEDY = f"{RAISE}, or set protocol=wal, which prepares one for an epoch, whatever its tasks."

_ROOM = """
select pg_postmaster_start_time()::text || ' ' || current_setting('port'),
       current_setting('max_prepared_transactions')::int,
       (select count(*)::int from pg_prepared_xacts)
"""


@dataclass(frozen=True, slots=True)
class Room:
    """The room for prepared transactions on one server.

    Args:
        server: its identity, the same for each of its addresses.
        most: ``max_prepared_transactions``.
        taken: prepared now, by anybody.
    """

    server: str
    most: int
    taken: int


@dataclass(frozen=True, slots=True)
class Shared:
    """Sinks that share transactions, or a single one.

    Args:
        protocol: ``2pc`` prepares a transaction per task, ``wal`` one per epoch.
    """

    names: tuple[str, ...]
    protocol: str


def findings_of_together(
    sinks: Sequence[tuple[str, PostgresOptions]],
    tasks: int | None,
    *,
    apart: Sequence[str] = (),
) -> list[Finding]:
    """Check the room on all servers of an epoch's sinks.

    Args:
        sinks: name and options of the job's PostgreSQL sinks.
        tasks: per epoch; None: at least one.
        apart: names of sinks with tasks of their own.

    Raises:
        TargetError: a server cannot be asked.
    """
    rooms = [(_room(options), name, options) for name, options in sinks]
    findings: list[Finding] = []
    for server, room in sorted({room.server: room for room, _, _ in rooms}.items()):
        here = [(name, options) for room, name, options in rooms if room.server == server]
        if len(here) > 1:
            findings += findings_of_room(_shared(here, apart), room, max(1, tasks or 1))
    return findings


def findings_of_room(shared: Sequence[Shared], room: Room, tasks: int) -> list[Finding]:
    """The findings of one server for several sinks; a sink's own preflight looks at it alone."""
    wanted = sum(tasks if one.protocol == "2pc" else 1 for one in shared)
    names = ", ".join(f"{' and '.join(one.names)} ({one.protocol})" for one in shared)
    need = (
        f"An epoch of {tasks} tasks prepares {wanted} transactions on one PostgreSQL server, for the "
        f"sinks {names}; "
    )
    if room.most < wanted:
        more = f"the server has room for {room.most} (max_prepared_transactions)."
        return [Finding.error(need + more, _REMEDY)]
    if room.most - room.taken < 2 * wanted:
        more = f"{room.most - room.taken} of {room.most} are free: retried tasks may find none."
        return [Finding.warning(need + more, _REMEDY)]
    return []


def _shared(sinks: Sequence[tuple[str, PostgresOptions]], apart: Sequence[str]) -> list[Shared]:
    """Group the sinks that prepare transactions together."""
    groups: dict[Hashable, Shared] = {}
    for name, options in sinks:
        of_tasks = name if options.protocol == "2pc" and name in apart else None
        key = of_tasks, transactions_of(options)
        before = groups.get(key)
        names = (name,) if before is None else (*before.names, name)
        groups[key] = Shared(names, options.protocol)
    return list(groups.values())


def _room(options: PostgresOptions) -> Room:
    with leased(options.server, doing="asking for prepared transactions") as connection:
        row = connection.execute(_ROOM).fetchone()
    assert row is not None
    server, most, taken = row
    return Room(server, most, taken)
