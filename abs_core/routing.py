"""Routes handles to the committer of the protocol that made them (``Committable.protocol``).

So a job may change its protocol: handles of its earlier protocols are committed or swept like those
of its present one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from abs_core.aborting import attempt_all
from abs_core.contracts import Committer, Conflict, Version
from abs_core.errors import ProtocolError, UnknownProtocolError
from abs_core.lookback import LookedBack, Past
from abs_core.model import (
    Committable,
    HandleName,
    InDoubt,
    Inspection,
    JobState,
    Outcome,
    Shown,
)


class ByProtocol(Committer):
    """A ``Committer`` that gives each handle to the committer of its protocol.

    It co-commits and composes where the committer of the present protocol does.

    Args:
        committers: by protocol. Each ignores handles that another protocol has made.
        present: the job's present protocol; None: it is unknown, and nothing is to be decided.
    """

    def __init__(self, committers: Mapping[str, Committer], present: str | None = None) -> None:
        self._committers = dict(committers)
        self._present = present
        if present is not None:
            own = self._committers[present]
            self.co_commits, self.composes = own.co_commits, own.composes

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        """See ``Committer``.

        Raises:
            UnknownProtocolError: there is no committer for a handle's protocol.
        """
        inspections: dict[HandleName, Inspection] = {}
        for committer, share in self._shares(committables):
            inspections |= committer.inspect(share)
        return inspections

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        """See ``Committer``.

        Raises:
            UnknownProtocolError: there is no committer for a handle's protocol; nothing is committed.
        """
        outcomes: dict[HandleName, Outcome] = {}
        for committer, share in self._shares(committables):
            outcomes |= committer.commit(share)
        return outcomes

    def co_commit(
        self, committables: Sequence[Committable], expected: Version | None, state: JobState
    ) -> Version | Conflict:
        """See ``Committer``.

        Raises:
            ProtocolError: a handle was made under another protocol; nothing was changed.
        """
        for committable in committables:
            if committable.protocol != self._present:
                raise _not_made_by(str(self._present), committable)
        return self._committers[str(self._present)].co_commit(committables, expected, state)

    def compose(self, committables: Sequence[Committable]) -> Sequence[Committable]:
        """See ``Committer``. Handles of other protocols stay as they are."""
        mine = [c for c in committables if c.protocol == self._present]
        others = [c for c in committables if c.protocol != self._present]
        return [*others, *(self._committers[str(self._present)].compose(mine) if mine else ())]

    def abort(self, handles: Sequence[HandleName]) -> None:
        """See ``Committer``. Calls every committer, as a name does not tell its protocol."""
        if handles:
            attempt_all(
                partial(committer.abort, handles) for committer in self._committers.values()
            )

    def forsake(self, committables: Sequence[Committable]) -> None:
        """See ``Committer``."""
        attempt_all(
            partial(committer.forsake, share) for committer, share in self._shares(committables)
        )

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        """See ``Committer``. Lists a handle once, even if two committers hold it."""
        doubts: dict[HandleName, InDoubt] = {}
        for committer in self._committers.values():
            for doubt in committer.in_doubt(job):
                doubts.setdefault(doubt.handle, doubt)
        return list(doubts.values())

    def forget(self, state: JobState) -> None:
        for committer in self._committers.values():
            committer.forget(state)

    def shown(self, committables: Sequence[Committable]) -> Sequence[Shown]:
        return [
            shown
            for committer, share in self._shares(committables)
            for shown in committer.shown(share)
        ]

    def look_back(self, past: Past) -> Sequence[LookedBack]:
        """See ``Committer``. Every committer is asked: a mark does not tell its protocol."""
        looks = (
            look for committer in self._committers.values() for look in committer.look_back(past)
        )
        return list(dict.fromkeys(looks))

    def _shares(
        self, committables: Sequence[Committable]
    ) -> list[tuple[Committer, Sequence[Committable]]]:
        """Each committer with its committables, in the order of the committers."""
        for committable in committables:
            if committable.protocol not in self._committers:
                raise _no_committer(committable)
        shares = (
            (committer, [c for c in committables if c.protocol == protocol])
            for protocol, committer in self._committers.items()
        )
        return [(committer, share) for committer, share in shares if share]


class NothingToCommit(Committer):
    """A ``Committer`` with nothing to do: rows are in the target before their committable exists."""

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        """See ``Committer``. A reported committable counts as prepared."""
        return {c.handle: Inspection(Outcome.PREPARED) for c in committables}

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        return {c.handle: Outcome.COMMITTED for c in committables}

    def abort(self, handles: Sequence[HandleName]) -> None:
        """Nothing: a row cannot be taken back; the epoch's retry overwrites it."""

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        return []

    def forget(self, state: JobState) -> None:
        """Nothing: there is no marker."""


def none_to_commit(
    committables: Sequence[Committable], why: str, remedy: str
) -> Mapping[HandleName, Outcome]:
    """``Committer.commit`` of a committer whose handles no decision may name.

    Raises:
        ProtocolError: with ``why`` and ``remedy``, if there is any committable.
    """
    for committable in committables:
        raise ProtocolError(why, handle=committable.handle, remedy=remedy)
    return {}


def _no_committer(committable: Committable) -> UnknownProtocolError:
    return UnknownProtocolError(
        f"A handle was made under protocol={committable.protocol}; this sink can neither look up "
        "its outcome nor end it.",
        handle=committable.handle,
        remedy="start the job once with the options that it had under "
        f"protocol={committable.protocol}, which finishes the decided epochs; then change the "
        "protocol.",
    )


def _not_made_by(protocol: str, committable: Committable) -> ProtocolError:
    return ProtocolError(
        f"A handle was made under protocol={committable.protocol}, but protocol={protocol} was "
        "asked to commit it.",
        handle=committable.handle,
        remedy="restart the query: its epoch is written again.",
    )
