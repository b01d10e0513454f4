"""A batch write that dies anywhere, and whose register is lost at any moment, is never there twice.

Each history is two or three runs of one batch, through the real coordinator. A run may die at any
call to the register's system, before it takes effect or after; the token's register vanishes between
two runs or before any call of one (the parent record stays). All of them are tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from abs_core import protocol
from abs_core.births import rules as births
from abs_core.births.parent import noted
from abs_core.certificate import Certificate, Origin
from abs_core.contracts import Conflict, RegisterStore, Stored, Version
from abs_core.coordinator.certifier import ParentCertificates
from abs_core.errors import AbsError
from abs_core.model import JobState, job_key
from abs_core.patience import Patience
from abs_core.protocol import RunIdentity, Verdict
from abs_core.registers import MemoryRegister
from abs_testing.case import rows
from abs_testing.engine import Run
from tests.kit.fake_harness import FakeHarness, open_fake
from tests.planted import planted

T = TypeVar("T")
TOKEN = job_key("nightly", "monday")
ROWS = rows(0, 2)
PATIENCE = Patience(seconds=0.0)


class Died(Exception):  # noqa: N818 - not an error: the test asked for it
    """The process ended here."""


class Cells(MemoryRegister):
    """A register's system that can lose a token's register."""

    def lose(self, job: str) -> None:
        with self._lock:
            self._cells.pop(job, None)


@dataclass(frozen=True)
class Life:
    """One run of the batch.

    Args:
        dies: at which of its calls to the register's system, from 0; None: it does not.
        after: whether the call it dies at has taken effect.
        loses: before which of its calls the token's register vanishes.
    """

    dies: int | None = None
    after: bool = False
    loses: int | None = None


class Calls(RegisterStore):
    """The register's system as one life reaches it."""

    def __init__(self, cells: Cells, life: Life) -> None:
        self._cells = cells
        self._life = life
        self.count = 0

    def load(self, job: str) -> Stored | None:
        return self._call(lambda: self._cells.load(job))

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState, deadline: float | None = None
    ) -> Version | Conflict:
        return self._call(lambda: self._cells.compare_and_set(job, expected, state, deadline))

    def _call(self, call: Callable[[], T]) -> T:
        number, self.count = self.count, self.count + 1
        if number == self._life.loses:
            self._cells.lose(TOKEN)
        dies = number == self._life.dies
        if dies and not self._life.after:
            raise Died
        result = call()
        if dies:
            raise Died
        return result


class NotedLate(ParentCertificates):
    """The planted bug: the token is noted after its decision."""

    _kept: Certificate | None = None

    def write(self, certificate: Certificate) -> None:
        self._kept = certificate

    def after_commit(self) -> None:
        if self._kept is not None:
            super().write(self._kept)


def live(harness: FakeHarness, cells: Cells, life: Life, *, late: bool = False) -> int:
    """One run of the batch, to its end; how many calls it made."""
    calls = Calls(cells, life)
    made = NotedLate if late else ParentCertificates
    try:
        parent = made(calls, TOKEN, "target", PATIENCE)
        run = Run(harness.new_sink(), TOKEN, store=calls, certificates=parent, patience=PATIENCE)
        run.epoch(0, ROWS)
        if isinstance(parent, NotedLate):
            parent.after_commit()
    except (Died, AbsError):
        pass
    return calls.count


def histories(length: int) -> Iterator[tuple[list[Life], bool]]:
    """Lives one after the other; whether the register vanishes in them or after the first.

    Args:
        length: more calls than a life makes.
    """
    for call in range(length):
        for after in (False, True):
            for lost in (False, True):
                yield [Life(dies=call, after=after), Life(), Life()], lost
        for number in (0, 1):
            lives = [Life(), Life(), Life()]
            lives[number] = Life(loses=call)
            yield lives, False


def rows_after(
    lives: Sequence[Life], *, lost: bool, late: bool = False
) -> Counter[tuple[int, str]]:
    """What a reader sees at the end."""
    cells = Cells()
    with open_fake("2pc", "append") as harness:
        live(harness, cells, lives[0], late=late)
        if lost:
            cells.lose(TOKEN)
        for life in lives[1:]:
            live(harness, cells, life, late=late)
        return Counter(harness.read())


def test_no_history_has_a_row_twice_and_none_is_missing_where_no_register_is_lost() -> None:
    with open_fake("2pc", "append") as harness:
        length = live(harness, Cells(), Life())
    assert length > 4
    tried = 0
    for lives, lost in histories(length + 2):
        found = rows_after(lives, lost=lost)
        assert max(found.values(), default=0) <= 1, f"{lives}, lost between: {lost}: {found}"
        if not lost and all(life.loses is None for life in lives):
            assert found == Counter(ROWS), f"{lives}: {found}"
        tried += 1
    assert tried == 6 * (length + 2)


def test_a_token_that_is_noted_after_its_decision_is_found() -> None:
    with open_fake("2pc", "append") as harness:
        length = live(harness, Cells(), Life(), late=True)
    doubled = [
        lives
        for lives, lost in histories(length + 2)
        if max(rows_after(lives, lost=lost, late=True).values(), default=0) > 1
    ]
    assert doubled, "no history doubles a row"


def test_minting_beside_the_parent_record_is_found() -> None:
    def start(
        state: JobState | None, who: RunIdentity, new: str, origin: Origin, epoch: int, place: str
    ) -> Verdict:
        return protocol.start(state, who, new)

    with planted((births, "start", start), match="assert 2 <= 1"):
        assert max(rows_after([Life(), Life()], lost=True).values()) <= 1


def test_the_token_is_noted_with_the_register_that_it_has() -> None:
    cells = Cells()
    with open_fake("2pc", "append") as harness:
        live(harness, cells, Life())
    stored, parent = cells.load(TOKEN), cells.load("nightly@")
    assert stored is not None
    assert parent is not None
    entry = noted(parent.state, "monday")
    assert entry is not None
    assert (entry.register, entry.generation) == (stored.state.register, 1)
