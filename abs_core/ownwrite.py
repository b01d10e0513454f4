"""A write of the user's own as a target: two functions in place of a sink.

``write(rows, token)`` writes an epoch's rows and the token in one transaction of a target that nothing
here knows. ``applied(application)`` returns the version that the target has. The register knows the
epoch before the target does: its decision is the **begin** of the write, and to commit it is to write.
The handle of a begin names no pre-commit. It gives the token its version, by the generation of the
*first* begin, as a decision is never changed (I2, I3): each try of an epoch has the same version, under
whatever generation it is made. So of a zombie's write and its successor's the target takes one.

What the target's transaction must keep, for exactly once:

- rows and version become durable together, or neither does;
- it changes nothing where the stored version is not lower than the token's;
- ``applied`` sees every write that has become durable before it was called.

Limits: a write that is under way when its client dies may become durable at any later time. Until it
does, ``applied`` does not show it, and the epoch is written again under the same version: then the
target's condition decides which of the two takes effect. Rows are not counted.
"""

from __future__ import annotations

import operator
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Self

from abs_core import consent, protocol
from abs_core.contracts import Committer
from abs_core.coordinator import Report
from abs_core.errors import AbsError, ProtocolError
from abs_core.lookback import EPOCHS, LookedBack, Past, Position, compared, reading_mark
from abs_core.model import (
    PROTOCOL,
    Committable,
    Drained,
    HandleName,
    InDoubt,
    Inspection,
    JobState,
    Outcome,
    Recent,
    Share,
    Shown,
    Wrote,
)
from abs_core.protocol import RunIdentity, Skip
from abs_core.rowdigest import RowDigest, is_row_digest

ONCE = "once"
"""The protocol that a begin's committable names."""

TARGET = "once:own"
"""The target of each such job: of its own nothing is known."""

_MARK = "version "
_NAMED = 5


class Token(NamedTuple):
    """What a write stores with the rows. Its text is an idempotency key.

    Args:
        application: the job's register key. It outlives the register, which a lost one would not.
        version: higher for each epoch of the job, and the same for every try of one epoch; below 2^63.
    """

    application: str
    version: int

    def __str__(self) -> str:
        return f"{self.application}:{self.version}"


class Promise(StrEnum):
    """What is promised; the last two where the target cannot tell what it has."""

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"
    AT_MOST_ONCE = "at most once"


Write = Callable[[Any, Token], object]
Applied = Callable[[str], int | None]


def token_of(begin: HandleName) -> Token:
    """The token of every try of an epoch."""
    return Token(begin.job, begin.generation * EPOCHS + begin.epoch)


def is_applied(version: int | None, begin: HandleName) -> bool:
    """Whether a target that has this version has the epoch: no later one begins before it is there."""
    return version is not None and version >= token_of(begin).version


def begin_of(handle: HandleName, rows: int = 0) -> Committable:
    """What the decision of an epoch names.

    Args:
        rows: of the epoch, where they were counted.
    """
    return Committable(handle, rows, "none", ((PROTOCOL, ONCE),))


@dataclass(frozen=True, slots=True, eq=False)
class Offered:
    """What an engine has when it commits an epoch.

    Args:
        begin: names the epoch's begin; None: it is finished, and only compared.
        rows: for ``write``.
        epoch: its number.
    """

    begin: HandleName | None
    rows: Any
    who: RunIdentity
    epoch: int

    def check_may_leave(self, begin: HandleName) -> None:
        """Refuse to go on without another epoch that was begun, unless that was consented to.

        Raises:
            ProtocolError: names the consent.
        """
        token = consent.to_leave_begun(str(begin), self.who, self.epoch)
        if self.who.adopt == token:
            return
        raise ProtocolError(
            f"Epoch {begin.epoch} was begun under version {token_of(begin).version}, and the target is "
            f"not known to have it. This is another epoch ({self.epoch}), so its rows are not here.",
            handle=begin,
            remedy="start the query on the checkpoint on which it was begun. Or look whether the "
            "target has its rows, write them yourself if it does not, and set the option "
            f"adopt={token} for one start.",
        )


@dataclass(eq=False)
class OwnWrite(Committer):
    """Commits a begin by the user's functions. For one process, which offers it the epoch's rows.

    Args:
        applied: None: the target cannot tell.
        promise: ``EXACTLY_ONCE`` if and only if ``applied`` is given.
        given_up: begins of which a person said that they may stay unwritten.
    """

    write: Write
    applied: Applied | None
    promise: Promise = Promise.EXACTLY_ONCE
    wrote: bool = field(default=False, init=False)
    """Whether ``write`` was called for what was offered last."""
    _offered: Offered | None = field(default=None, init=False)
    _untried: HandleName | None = field(default=None, init=False)
    _inspected: int | None = field(default=None, init=False)
    _left: set[HandleName] = field(default_factory=set, init=False)

    def offer(self, offered: Offered, *, first: bool) -> None:
        """Give the rows of the epoch that is committed next.

        Args:
            first: its begin is new, so that no try of it was ever made.
        """
        self._offered, self.wrote = offered, False
        self._untried = offered.begin if first else None

    def has(self, begin: HandleName) -> bool:
        """Whether the target is known to have the epoch.

        Raises:
            ProtocolError: ``applied`` failed, or returned no version.
        """
        return is_applied(self._version(begin.job), begin)

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        """A begin that the target already has would be a register that went back: it is refused."""
        outcomes: dict[HandleName, Inspection] = {}
        for begin in (committable.handle for committable in committables):
            self._inspected = self._version(begin.job)
            there = is_applied(self._inspected, begin)
            outcomes[begin] = Inspection(Outcome.COMMITTED if there else Outcome.PREPARED)
        return outcomes

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        """Write what the target does not have.

        Raises:
            ProtocolError: a function failed; the epoch stays begun. Or these rows are not here.
        """
        for committable in committables:
            self._commit(committable.handle)
        return {committable.handle: Outcome.COMMITTED for committable in committables}

    def _commit(self, begin: HandleName) -> None:
        first, self._untried = self._untried == begin, None
        if not first and (self.has(begin) or self.promise is Promise.AT_MOST_ONCE):
            return
        offered = self._offered
        if offered is None:
            raise ProtocolError(
                f"Epoch {begin.epoch} was begun under version {token_of(begin).version}, and only its "
                "query can tell whether the target has it.",
                handle=begin,
                remedy="start the query once more, which writes the epoch unless the target has it; "
                "then run the command again.",
            )
        if offered.begin != begin:
            offered.check_may_leave(begin)
            self._left.add(begin)
            return
        token = token_of(begin)
        self.wrote = True
        try:
            self.write(offered.rows, token)
        except Exception as error:
            # Its reply may be lost. What is there is there, whatever the function said.
            if self._has_in_spite_of(error, begin):
                return
            raise ProtocolError(
                f"The function write failed: {_short(error)}.",
                handle=begin,
                remedy="see its error above, mend the cause, and restart the query: the epoch is "
                "begun, and is written again under the same version unless the target has it by then.",
            ) from error
        if self.applied is not None and not self.has(begin):
            raise ProtocolError(
                f"The function write has returned, and the target does not have version "
                f"{token.version} of {token.application}.",
                handle=begin,
                remedy="let write store the token in the transaction of the rows, and let applied read "
                "it there; let errors leave the function. Then restart the query: the epoch is written "
                "again unless the target has it by then.",
            )

    def _has_in_spite_of(self, error: Exception, begin: HandleName) -> bool:
        try:
            return self.has(begin)
        except AbsError as second:
            error.add_note(f"Whether it was written could not be looked up either: {second}")
            return False

    def _version(self, application: str) -> int | None:
        if self.applied is None:
            return None
        try:
            version = self.applied(application)
            return None if version is None else _checked(version)
        except Exception as error:
            raise ProtocolError(
                f"The function applied failed: {_short(error)}.",
                job=application,
                remedy="see its error above; let it return an int, or None for an application that the "
                "target does not know. Then restart the query.",
            ) from error

    def left_by(self, job: str) -> Position | None:
        version = self._version(job)
        return None if version is None else divmod(version, EPOCHS)

    def shown(self, committables: Sequence[Committable]) -> Sequence[Shown]:
        if self.applied is None:
            return ()
        there = (c for c in committables if c.handle not in self._left)
        return [Shown(0, c.rows, f"{_MARK}{token_of(c.handle).version}") for c in there]

    def look_back(self, past: Past) -> Sequence[LookedBack]:
        if self.applied is None:
            return ()
        # Before a decision it was asked a moment ago.
        version = (self._inspected if past.own else self._version(past.job)) or 0

        def is_there(mark: str) -> bool:
            with reading_mark("a write of your own"):
                return version >= int(mark.removeprefix(_MARK))

        why = f"Its version of {past.job} is {version}."
        looks = compared(past, is_there, why)
        if not past.running and version > past.decided[0] * EPOCHS + past.decided[1]:
            looks.append(LookedBack(0, ahead=divmod(version, EPOCHS)))
        return looks

    def abort(self, handles: Sequence[HandleName]) -> None:
        """Nothing is prepared, so nothing is aborted."""

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        return ()

    def forget(self, state: JobState) -> None:
        """The version stays: it is the proof."""


def without_functions(*, leave: bool) -> OwnWrite:
    """For commands, which have neither rows nor functions: they write nothing.

    Args:
        leave: a begin may stay as it is, as the job begins anew or is removed; else it is refused.
    """
    # Nothing is offered, so nothing is written.
    return OwnWrite(
        lambda rows, token: None, None, Promise.AT_MOST_ONCE if leave else Promise.AT_LEAST_ONCE
    )


def left_to_the_user(states: Sequence[JobState]) -> list[str]:
    """What no command knows or does, as lines for people, of jobs whose registers will be deleted."""
    states = [state for state in states if state.target == TARGET]
    if not states:
        return []
    names = ", ".join(state.job for state in states[:_NAMED])
    more = f" and {len(states) - _NAMED} more" if len(states) > _NAMED else ""
    begins = [decision.committables[0].handle for state in states for decision in state.open]
    lines = [
        f"epoch {begin.epoch} of {begin.job} was begun under version {token_of(begin).version}: look "
        "whether the target has its rows"
        for begin in begins
    ]
    kept = f"the target keeps the version of application {names}{more}"
    return [*lines, f"{kept}: while it does, a start without the register is refused"]


@dataclass(frozen=True, slots=True)
class OwnEpoch:
    """One epoch of a run, for an engine that commits by an ``OwnWrite``.

    Args:
        begin: of the epoch; None: it is finished.
        is_new: it was never begun before.
    """

    state: JobState
    number: int
    begin: HandleName | None
    is_new: bool

    @classmethod
    def of(cls, begun: tuple[JobState, protocol.Write | Skip], number: int) -> Self:
        """The epoch, by what ``Coordinator.begin`` returned."""
        state, plan = begun
        if not isinstance(plan, Skip):
            attempt = secrets.token_hex(8)
            begin = HandleName(state.register, state.job, state.generation, number, 0, attempt)
            return cls(state, number, begin, is_new=True)
        decision = state.decision(number)
        first = None if decision is None else decision.committables[0].handle
        return cls(state, number, first, is_new=False)

    def report(
        self, fingerprint: str | None, counted: Callable[[], tuple[int, RowDigest]]
    ) -> Report:
        """What is decided, or compared with what was: before anything is written.

        Args:
            fingerprint: of the input; None: the rows are compared.
            counted: number and digest of the rows; called only if they are compared.

        Raises:
            ReplayMismatchError: another epoch was begun under this number.
        """
        recorded = self.state.record(self.number)
        rows, digest = 0 if recorded is None else recorded.rows, None
        if fingerprint is None or (recorded is not None and is_row_digest(recorded.fingerprint)):
            rows, digest = counted()
        share: Share = Drained(rows, digest)
        if self.is_new and self.begin is not None:
            share = Wrote(rows, begin_of(self.begin, rows), digest)
        report = Report(self.number, [share], fingerprint, gaps_allowed=True, alone=True)
        if not self.is_new:
            fingerprint, rows = report.known_by(self.state)
            refused = protocol.same_epoch(self.state, self.number, fingerprint, rows)
            if refused is not None:
                raise refused.error
        return report

    def offer_to(self, own: OwnWrite, rows: Any, who: RunIdentity) -> None:
        """Have it written by the next commit, unless the target has it."""
        own.offer(Offered(self.begin, rows, who, self.number), first=self.is_new)


def counted(state: JobState, record: Recent) -> int | None:
    """The rows of an epoch of any job; None: of an own write, and their digest is not compared."""
    return record.rows if state.target != TARGET or is_row_digest(record.fingerprint) else None


def _checked(version: object) -> int:
    """The answer of ``applied``, if a token can have had it; raises TypeError or ValueError."""
    if isinstance(version, bool):
        raise TypeError(f"it returned {version}, and not a version")
    number = operator.index(version)  # type: ignore[arg-type]
    # A first run has generation 1. A 0 would be an epoch of a register that is lost.
    if not EPOCHS <= number < 1 << 63:
        raise ValueError(f"it returned {number}, which no token has had")
    return number


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:300]}".rstrip(".: ")
