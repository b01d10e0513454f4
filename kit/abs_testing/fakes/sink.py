"""The fake sink and its committers."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence

from abs_core.aborting import abort_each
from abs_core.contracts import Committer, Conflict, RegisterStore, Sink, Task, Version, Writer
from abs_core.crash import CrashPoint, reached
from abs_core.errors import NotPreparedError, OptionError, RefusedError
from abs_core.lookback import LookedBack, Past, compared
from abs_core.model import (
    Committable,
    Finding,
    Guarantee,
    HandleName,
    InDoubt,
    Inspection,
    JobState,
    Outcome,
    Shown,
)
from abs_core.protocol import sweepable
from abs_core.routing import ByProtocol, NothingToCommit
from abs_core.sinkmap import number_of
from abs_testing.fakes.target import FakeRegister, FakeTarget, read, swap
from abs_testing.fakes.writers import WRITERS, drop, upsert


class HandleCommitter(Committer):
    """Commits handle by handle, with a marker for each as proof of commit.

    Args:
        keyed: upsert by id; append otherwise.
    """

    def __init__(self, target: FakeTarget, *, keyed: bool) -> None:
        self._target = target
        self._keyed = keyed

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        with self._target.transaction() as db:
            return {c.handle: Inspection(_outcome(db, c)) for c in committables}

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        outcomes: dict[HandleName, Outcome] = {}
        for committable in committables:
            if outcomes:
                reached(CrashPoint.BETWEEN_COMMITS)
            outcomes[committable.handle] = self._commit(committable)
        return outcomes

    def abort(self, handles: Sequence[HandleName]) -> None:
        def abort(handle: HandleName) -> None:
            with self._target.transaction() as db:
                if db.execute("SELECT 1 FROM held WHERE handle = ?", [str(handle)]).fetchone():
                    raise RefusedError("The fake target refuses.", handle=str(handle))
                drop(db, str(handle))

        abort_each(handles, abort)

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        with self._target.transaction() as db:
            return [InDoubt(name, None, f"prepared {name}") for name in _names(db, "prepared", job)]

    def forget(self, state: JobState) -> None:
        with self._target.transaction() as db:
            for name in _names(db, "marker", state.job):
                if sweepable(state, state.generation, name):
                    db.execute("DELETE FROM marker WHERE handle = ?", [str(name)])

    def shown(self, committables: Sequence[Committable]) -> Sequence[Shown]:
        """See ``Committer``: how many handles of epoch and sink the rows' own table must have."""
        names = (committable.handle for committable in committables)
        counts = Counter((name.generation, name.epoch, number_of(name)) for name in names)
        mark = json.dumps([[*position, count] for position, count in counts.items()])
        return [Shown(0, sum(c.rows for c in committables), mark)]

    def look_back(self, past: Past) -> Sequence[LookedBack]:
        query = "SELECT generation, epoch, sink FROM applied WHERE register = ?"
        with self._target.transaction() as db:
            applied = Counter(db.execute(query, [past.register]).fetchall())

        def is_there(mark: str) -> bool:
            return all(applied[tuple(place)] >= count for *place, count in json.loads(mark))

        def has_part(mark: str) -> bool:
            return any(applied[tuple(place)] for *place, _ in json.loads(mark))

        last = max(((generation, epoch) for generation, epoch, _ in applied), default=past.decided)
        ahead = [LookedBack(0, ahead=last)] if last > past.decided else []
        return [
            *compared(past, is_there, "It lacks some of their handles.", has_part=has_part),
            *ahead,
        ]

    def _commit(self, committable: Committable) -> Outcome:
        with self._target.transaction() as db:
            outcome = _outcome(db, committable)
            if outcome is not Outcome.PREPARED:
                return outcome
            handle = committable.handle
            self._apply(db, committable)
            db.execute("INSERT INTO marker VALUES (?, ?)", [str(handle), handle.job])
            return Outcome.COMMITTED

    def _apply(self, db: sqlite3.Connection, committable: Committable) -> None:
        name, handle = committable.handle, str(committable.handle)
        place = name.register, name.generation, name.epoch, number_of(name)
        db.execute("INSERT INTO applied VALUES (?, ?, ?, ?)", place)
        if self._keyed:
            staged = db.execute("SELECT id, value FROM staged WHERE handle = ?", [handle])
            upsert(db, staged.fetchall())
        else:
            db.execute("INSERT INTO data SELECT id, value FROM staged WHERE handle = ?", [handle])
        drop(db, handle)


class TransactionCommitter(HandleCommitter):
    """wal: applies all handles of an epoch and the register in one transaction."""

    co_commits = True

    def co_commit(
        self, committables: Sequence[Committable], expected: Version | None, state: JobState
    ) -> Version | Conflict:
        with self._target.transaction() as db:
            # The version first: if a newer run has swept the rows, the error must be the fencing.
            stored = read(db, state.job)
            if (None if stored is None else stored.version) != expected:
                return Conflict()
            for committable in committables:
                if _outcome(db, committable) is not Outcome.PREPARED:
                    raise NotPreparedError(
                        "What was staged is not all there.", handle=str(committable.handle)
                    )
                self._apply(db, committable)
            swapped = swap(db, state.job, expected, state)
            reached(CrashPoint.INSIDE_CO_COMMIT)
            return swapped


def _outcome(db: sqlite3.Connection, committable: Committable) -> Outcome:
    handle = str(committable.handle)
    prepared = db.execute("SELECT rows FROM prepared WHERE handle = ?", [handle]).fetchone()
    if prepared is not None:
        return Outcome.PREPARED if prepared[0] == committable.rows else Outcome.UNKNOWN
    marker = db.execute("SELECT 1 FROM marker WHERE handle = ?", [handle]).fetchone()
    return Outcome.UNKNOWN if marker is None else Outcome.COMMITTED


def _names(db: sqlite3.Connection, table: str, job: str | None) -> list[HandleName]:
    query = f"SELECT handle FROM {table} WHERE job = coalesce(?, job)"
    rows = db.execute(query, [job]).fetchall()
    names = (HandleName.parse(handle) for (handle,) in rows)
    return sorted(name for name in names if name is not None)


_WRITES = {"2pc": ("append",), "wal": ("append", "upsert"), "idempotent": ("upsert",)}
_VISIBLE = {
    "2pc": "per task, on commit",
    "wal": "whole epochs, on commit",
    "idempotent": "per task, before commit",
}


class FakeSink(Sink):
    """A sink on a ``FakeTarget``.

    Args:
        protocol: ``2pc``, ``wal`` or ``idempotent``.
        write: ``append`` or ``upsert`` (by ``id``).

    Raises:
        OptionError: the protocol does not do this kind of write.
    """

    def __init__(self, target: FakeTarget, protocol: str, write: str) -> None:
        if write not in _WRITES.get(protocol, ()):
            raise OptionError(
                f"The fake sink has no {write} under {protocol}.",
                remedy=f"take one of {_WRITES}.",
            )
        self._target = target
        self._protocol = protocol
        self._write = write

    @property
    def target_id(self) -> str:
        return f"fake:{self._target.name}"

    def writer(self, task: Task) -> Writer:
        return WRITERS[self._protocol](self._target, task)

    def committer(self) -> Committer:
        keyed = self._write == "upsert"
        committers: dict[str, Committer] = {
            "2pc": HandleCommitter(self._target, keyed=keyed),
            "wal": TransactionCommitter(self._target, keyed=keyed),
            "idempotent": NothingToCommit(),
        }
        return ByProtocol(committers, self._protocol)

    def register(self) -> RegisterStore:
        return FakeRegister(self._target)

    def preflight(self, job: str, tasks: int | None = None) -> Sequence[Finding]:
        return []

    def guarantee(self) -> Guarantee:
        return Guarantee(self._protocol, self._write, _VISIBLE[self._protocol], "nothing")

    def is_empty(self) -> bool:
        with self._target.transaction() as db:
            return db.execute("SELECT 1 FROM data LIMIT 1").fetchone() is None

    def fence(self, state: JobState) -> None:
        pass

    def close(self) -> None:
        self._target.close()
