"""Finds which rows of an epoch are dead: pure, over trials that a server makes.

Rows are numbered from 0 in the order in which they would live. A set of rows is accepted or refused as
a whole. The dead rows are those whose complement is accepted while no part of them can come back. Of
several such sets the one is taken whose first row, in the order, is the latest; then its second.

A guess comes first: rows are added on top of one another, halves where a whole is refused, and again
until none is added. It is no more than a guess: ``start`` decides with the transaction's own statements
over all rows but the dead ones. Then each dead row is tried beside the rest, and groups of rows that
depend on one another are tried in all combinations, up to ``LARGEST`` rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product
from typing import Protocol

LARGEST = 10
"""Rows of a group of which all combinations are tried."""

EARLY = 2000
"""Refused rows from which adding may stop early: later rows of their keys could replace fewer."""

PROBES = 5000
"""Combinations that are tried in one epoch."""


class Kind(Enum):
    """What a refusal says of other rows; it guides the search, and never decides."""

    OWN = "the row's own values are refused"
    LATE = "the row is too late beside the others; together with them it may be accepted"
    OTHER = "others may be why"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why rows are refused.

    Args:
        code, message, column: as of a dead letter.
    """

    code: str
    message: str
    column: str | None
    kind: Kind = Kind.OTHER


class TooManyDead(Exception):  # noqa: N818 - mapped to an error that names table and option
    """More rows are refused than the limit can allow; ``refusal`` is the last one."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class Trials(Protocol):
    """An epoch's rows, and a server that tries them; nothing of it stays."""

    count: int
    """Number of rows."""
    waits: bool
    """Whether a row may be accepted only after a later one, as by a foreign key."""

    def start(self, out: Collection[int]) -> Refusal | None:
        """Apply all rows but these as the epoch's transaction does, from where the epoch began."""

    def begin(self) -> None:
        """Go back to where the epoch began: no row is applied."""

    def add(self, rows: Sequence[int]) -> Refusal | None:
        """Apply rows on top of what is applied; they stay if they are accepted."""

    def probe(self, rows: Sequence[int]) -> Refusal | None:
        """As ``add``; they do not stay."""

    def linked(self, rows: Collection[int], among: Collection[int] | None, most: int) -> set[int]:
        """Rows that share a key, a unique value or a reference with these; no more than ``most``.

        Args:
            among: only of these; None: of all.
        """

    def shares_key(self, rows: Collection[int]) -> set[int]:
        """Those of these rows that have their key in common with another row."""


def find_dead(trials: Trials, most: int) -> dict[int, Refusal]:
    """The dead rows, and why each is refused beside the rows that live.

    Args:
        most: rows that may be dead.

    Raises:
        TooManyDead: more are.
    """
    search = _Search(trials, most)
    out = search.guess()
    if not out and search.trials.start(out) is None:
        return {}
    return search.improved(search.accepted(out))


class _Search:
    def __init__(self, trials: Trials, most: int) -> None:
        self.trials = trials
        self._most = most
        self._probes = PROBES
        self._why: dict[int, Refusal] = {}

    def guess(self) -> set[int]:
        self.trials.begin()
        waiting: Sequence[int] = range(self.trials.count)
        while True:
            refused = self._grow(waiting)
            if not refused or len(refused) == len(waiting):
                self._check(refused)
                return set(refused)
            waiting = refused

    def _grow(self, rows: Sequence[int]) -> list[int]:
        """Add rows on top of one another, by halves; returns those that are refused."""
        refused: list[int] = []
        waiting = [rows]
        while waiting:
            block = waiting.pop()
            if not block:
                continue
            refusal = self.trials.add(block)
            if refusal is None:
                continue
            if len(block) > 1:
                half = len(block) // 2
                waiting += [block[half:], block[:half]]
                continue
            self._why[block[0]] = refusal
            refused.append(block[0])
            if not self.trials.waits and len(refused) > max(4 * self._most, EARLY):
                self._check(refused)
        return refused

    def _check(self, out: Collection[int]) -> None:
        if len(out) > self._most:
            raise TooManyDead(self._why[max(out)])

    def accepted(self, out: set[int]) -> set[int]:
        """With so many more rows that the rest is accepted; the trial then holds the rest."""
        while (refusal := self.trials.start(out)) is not None:
            rows = [row for row in range(self.trials.count) if row not in out]
            low, high = 0, len(rows)  # the first ``low`` rows are accepted, the first ``high`` not
            while high - low > 1:
                middle = (low + high) // 2
                tried = self.trials.start(out | set(rows[middle:]))
                if tried is None:
                    low = middle
                else:
                    high, refusal = middle, tried
            out = out | {rows[high - 1]}
            self._why[rows[high - 1]] = refusal
            self._check(out)
        return out

    def improved(self, out: set[int]) -> dict[int, Refusal]:
        """Let come back what can; returns the dead rows and why."""
        out = self._singles(out)
        own = {row for row in out if self._why[row].kind is Kind.OWN}
        own -= self.trials.shares_key(own)
        before = None
        while before != out:
            before = out
            out = self._groups(out, own & out)
            if before != out:
                out = self._singles(self.accepted(out))
        return {row: self._why[row] for row in sorted(out)}

    def _singles(self, out: set[int]) -> set[int]:
        """Each dead row beside the rest, which the trial holds; so again after one came back."""
        more = True
        while more:
            more = False
            for row in sorted(out):
                refusal = self.trials.probe([row])
                if refusal is not None and refusal.kind is not Kind.LATE:
                    self._why[row] = refusal
                    continue
                refusal = self.trials.start(out - {row})
                if refusal is None:
                    out, more = out - {row}, True
                    continue
                self._why[row] = refusal
                self.trials.start(out)
        return out

    def _groups(self, out: set[int], own: set[int]) -> set[int]:
        """Groups of rows that depend on one another, where one is dead for others' sake."""
        seen: set[int] = set()
        for row in sorted(out - own):
            if row in seen:
                continue
            group = self._component(row, None, own, LARGEST)
            if group is None:
                group = self._component(row, out - own, own, len(out)) or {row}
            seen |= group
            if len(group) == 1:
                continue
            chosen = self._chosen(group, out) if len(group) <= LARGEST else self._added(group, out)
            if chosen is not None:
                return chosen
        return out

    def _component(
        self, row: int, among: set[int] | None, own: set[int], most: int
    ) -> set[int] | None:
        """All rows that are linked to this one, directly or not; None: more than ``most``."""
        group, edge = {row}, {row}
        while edge:
            edge = self.trials.linked(edge, among, most + len(own | group) + 1) - group - own
            group |= edge
            if len(group) > most:
                return None
        return group

    def _chosen(self, group: set[int], out: set[int]) -> set[int] | None:
        """The dead rows if another choice within the group lives longer."""
        lives = frozenset(group - out)
        if self.trials.start(out | group) is not None:
            self.trials.start(out)
            return None
        for rows in _by_length_of_life(sorted(group)):
            self._probes -= 1
            if frozenset(rows) == lives or self._probes < 0:
                break
            if self.trials.probe(rows) is not None:
                continue
            dead = (out | group) - set(rows)
            if self.trials.start(dead) is None:
                return dead
            self.trials.start(out | group)
        self.trials.start(out)
        return None

    def _added(self, group: set[int], out: set[int]) -> set[int] | None:
        """The dead rows if some of a large group of dead ones are accepted together."""
        self.trials.start(out)
        refused = self._grow(sorted(group))
        dead = (out - group) | set(refused)
        if dead != out and self.trials.start(dead) is None:
            return dead
        self.trials.start(out)
        return None


def _by_length_of_life(rows: Sequence[int]) -> Iterator[list[int]]:
    """All sets of these rows; one comes before another if it has the first row that one lacks."""
    for chosen in product((True, False), repeat=len(rows)):
        yield [row for row, lives in zip(rows, chosen, strict=True) if lives]
