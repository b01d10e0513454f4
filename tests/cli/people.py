"""A job, people who rename and move its register and end its handles at any time, and what must hold.

Each command may be killed, or paused while other people's commands run to their end. After each step
no row is there twice, none of a finished epoch is missing unless its loss was told and accepted, and at
most one register is live. Of two that act at once only one is told that it has finished an epoch, and a
fence tells exactly what it has aborted. In the end the same commands, run again, lead to a job that
goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from random import Random

from abs_cli.moving import fenced, move, rename
from abs_core.certificate import MemoryCertificates
from abs_core.contracts import Committer, Conflict, Stored, Version
from abs_core.coordinator import Coordinator
from abs_core.coordinator._report import epoch_id
from abs_core.errors import AbsError, HandleLostError
from abs_core.events import Event, Observer, RolledForward, ignore
from abs_core.model import HandleName, JobState, Share
from abs_core.patience import Patience
from abs_core.protocol import RunIdentity, sweep
from abs_core.registers import MemoryRegister
from abs_testing.behind import CommitterBehind
from abs_testing.case import Case, rows
from abs_testing.cuts import Cut, Halted
from abs_testing.engine import Run
from abs_testing.fault_injection import Wire
from abs_testing.harness import Row

NAMES = ("one", "two", "three")
CUTS = (
    *(None, None, None),
    Cut("commit"),
    Cut("commit", handles=1),
    Cut("compare_and_set"),
    Cut("forget"),
)
QUICK = Patience(seconds=0.2)
DEPTH = 2
"""So many commands are paused at a time, at most."""


def parts(epoch: int) -> tuple[list[Row], list[Row]]:
    """The rows of its two tasks."""
    return rows(epoch * 100, 2), rows(epoch * 100 + 50, 2)


class Place(MemoryRegister):
    """A place of registers, whose calls may be watched."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.before: Callable[[bool], None] = lambda changes: None

    def load(self, job: str) -> Stored | None:
        self.before(False)
        return super().load(job)

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState, deadline: float | None = None
    ) -> Version | Conflict:
        self.before(True)
        return super().compare_and_set(job, expected, state, deadline)

    def retire(self, job: str) -> bool:
        self.before(True)
        return super().retire(job)

    def place(self, job: str) -> str:
        return f"{self.name}/{job}"


class Aborting(CommitterBehind):
    """A committer that keeps which handles its own aborts have ended."""

    def __init__(self, committer: Committer) -> None:
        super().__init__(committer, Wire())
        self.ended = set[str]()

    def abort(self, handles: Sequence[HandleName]) -> None:
        before = self._prepared(handles)
        super().abort(handles)
        self.ended |= before - self._prepared(handles)

    def _prepared(self, handles: Sequence[HandleName]) -> set[str]:
        jobs = {handle.job for handle in handles}
        return {str(doubt.handle) for job in jobs for doubt in self._inner.in_doubt(job)}


class Walk:
    """One random history.

    Args:
        case: of a sink whose register lies elsewhere, and which prepares handle by handle.
    """

    def __init__(self, case: Case, random: Random) -> None:
        self.case, self.random = case, random
        self.places = [Place(name) for name in ("here", "there", "beyond")]
        self.certificates = MemoryCertificates()
        self.name, self.at = NAMES[0], 0
        """Where the job is, as its owner knows by what the commands have said."""
        self.next = self.done = 0
        """The engine's next epoch, and how many are finished."""
        self.lost = set[Row]()
        self.finished = Counter[str]()
        """How many commands were told that they have finished an epoch, by its id."""
        self.zombies: list[tuple[Run, int, list[Share]]] = []
        self.asked: list[Callable[[], None]] = []
        """Commands that were given; any may be given again."""
        self.depth = 0
        self.story: list[str] = []
        self.acts = [
            *([self.epoch] * 3 + [self.rename, self.move] + [self.again] * 2),
            *(self.zombie, self.fence, self.commit, self.abort, self.administrator, self.accept),
        ]

    def step(self) -> None:
        self.random.choice(self.acts)()
        self.check()

    # What the job does.

    def epoch(self) -> None:
        """A run writes one epoch, and may die; or its engine does not note that it was done."""
        cut, epoch = self.random.choice(CUTS), self.next
        run = self._run(cut)
        shares: list[Share] = []
        with self._told(f"epoch {epoch}, {cut}"):
            try:
                shares = run.tasks(epoch, *parts(epoch))
                if self.random.random() < 0.1:
                    raise Halted("after its tasks")
                run.commit(epoch, shares)
            except Halted:
                self.zombies.append((run, epoch, shares))
                return
            self.done = max(self.done, epoch + 1)
            self.next += self.random.random() < 0.8

    def zombie(self) -> None:
        """A process that seemed dead commits its epoch."""
        if self.zombies:
            run, epoch, shares = self.zombies.pop()
            with self._told(f"zombie of epoch {epoch}"):
                run.coordinator = run._tasks
                run.commit(epoch, shares)
                self.done = max(self.done, epoch + 1)

    def administrator(self) -> None:
        """Ends a decided handle by hand."""
        state = self._here()
        if state is not None and state.open:
            one = self.random.choice(state.open[0].committables)
            self._committer().abort([one.handle])

    # What people do.

    def rename(self) -> None:
        old, new, at = self.name, self.random.choice(NAMES), self.at

        def command() -> None:
            rename(self.places[at], self._committer(), old, new)
            if (self.name, self.at) == (old, at):
                self.name = new

        if new != old:
            self._given(f"rename {old} {new} at {at}", command)

    def move(self) -> None:
        job, at, to = self.name, self.at, self.random.randrange(len(self.places))

        def command() -> None:
            move(self.places[at], self._committer(), job, self.places[to])
            if (self.name, self.at) == (job, at):
                self.at = to

        if to != at:
            self._given(f"move {job} from {at} to {to}", command)

    def again(self) -> None:
        if self.asked:
            self._act("the same again", self.random.choice(self.asked[-3:]))

    def fence(self) -> None:
        state = self._here()
        if state is not None:
            place, seen, committer = self.places[self.at], state, Aborting(self._committer())

            def command() -> None:
                doubts = committer.in_doubt(seen.job)
                told, _ = fenced(place, committer, seen, doubts)
                named = {str(doubt.handle) for doubt in told}
                assert committer.ended == named, self._failed(f"told: aborted {named}")

            self._act("fence", command)

    def commit(self) -> None:
        def command() -> None:
            seen: list[Event] = []
            self._coordinator(seen.append).roll_forward()
            here = [event for event in seen if isinstance(event, RolledForward) and event.here]
            self.finished.update(event.id for event in here)

        self._act("commit", command)

    def abort(self) -> None:
        place, job = self.random.choice(self.places), self.random.choice(NAMES)

        def command() -> None:
            stored = place.load(job)
            if stored is not None:
                names = [doubt.handle for doubt in self._committer().in_doubt(job)]
                doomed = sweep(stored.state, stored.state.generation, names)
                self._committer().abort(doomed)

        self._act("abort", command)

    def accept(self) -> None:
        self._act("accept a loss", self._accept)

    def _accept(self) -> None:
        state = self._here()
        if state is not None and state.open:
            decision, coordinator = state.open[0], self._coordinator()
            epoch = decision.epoch
            lost = [loss.committable for loss in coordinator.lost(epoch)]
            coordinator.accept_loss(epoch, lost)
            self.finished[epoch_id(state, decision.lineage, epoch)] += 1
            for one in lost:
                self.lost.update(parts(epoch)[one.handle.partition])
            self.done = max(self.done, epoch + 1)

    def _given(self, what: str, command: Callable[[], None]) -> None:
        self.asked.append(command)
        self._act(what, command)

    def _act(self, what: str, command: Callable[[], object]) -> None:
        """Give a command that is killed at one of its calls, or paused while others are given.

        It is not paused at a change: what it has read a moment before is still so.
        """
        if self.depth == DEPTH:
            return
        way, left = (
            self.random.choice(["", "", "killed", "paused", "paused"]),
            [self.random.randrange(12)],
        )
        outer = self.places[0].before

        def before(changes: bool) -> None:
            if not way or (way == "paused" and changes):
                return
            left[0] -= 1
            if left[0] != -1:
                return
            if way == "killed":
                raise Halted(what)
            self._watch(lambda changes: None)
            for _ in range(self.random.randint(1, 4)):
                self.random.choice(self.acts)()
            self._watch(before)

        self.depth += 1
        self._watch(before)
        try:
            with self._told(f"{what} {way}"), suppress(Halted):
                command()
        finally:
            self._watch(outer)
            self.depth -= 1

    def _watch(self, before: Callable[[bool], None]) -> None:
        for place in self.places:
            place.before = before

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """An error of ours is an answer, which the next check judges."""
        try:
            yield
            self.story.append(what)
        except AbsError as error:
            self.story.append(f"{what}: {type(error).__name__}: {error.what}")

    # What must hold.

    def check(self) -> None:
        seen = Counter((int(key), str(value)) for key, value in self.case.harness.read())
        assert max(seen.values(), default=1) == 1, self._failed("a row is there twice")
        for epoch in range(self.done):
            due = {row for part in parts(epoch) for row in part} - self.lost
            assert due <= seen.keys(), self._failed(f"rows of epoch {epoch} are missing")
        assert len(self._live()) <= 1, self._failed("two registers are live")
        claims = max(self.finished.values(), default=1)
        assert claims == 1, self._failed("two were told that they have finished an epoch")

    def settle(self) -> None:
        """The commands are given again until a register is live; then the job goes on."""
        self.depth = 0
        while not self._live() and any(place.jobs() for place in self.places):
            before = [place.jobs() for place in self.places]
            for command in reversed(self.asked):
                with suppress(AbsError):
                    command()
                if self._live():
                    break
            assert [place.jobs() for place in self.places] != before, self._failed("stuck")
        if not self._live():
            return
        ((self.name, self.at),) = self._live()
        for _ in range(6):
            try:
                self._run(None).epoch(self.next, *parts(self.next))
                self.next += 1
                self.done = max(self.done, self.next)
            except HandleLostError:
                self._accept()
            self.check()
        left = [what for name in NAMES for what in self.case.harness.leftovers(name)]
        assert not left, self._failed(f"left behind: {left}")

    def _failed(self, what: str) -> str:
        return "\n".join([what, *self.story])

    def _live(self) -> list[tuple[str, int]]:
        return [
            (stored.state.job, number)
            for number, place in enumerate(self.places)
            for stored in place.jobs()
            if stored.state.moved_to is None
        ]

    def _run(self, cut: Cut | None) -> Run:
        place, checkpoint = self.places[self.at], self.certificates
        return self.case.run(
            self.name, store=place, certificates=checkpoint, patience=QUICK, cut=cut
        )

    def _here(self) -> JobState | None:
        stored = MemoryRegister.load(self.places[self.at], self.name)
        return None if stored is None else stored.state

    def _committer(self) -> Committer:
        return self.case.sink().committer()

    def _coordinator(self, observe: Observer = ignore) -> Coordinator:
        """As ``abs in-doubt`` makes one."""
        state = self._here() or JobState("0" * 16, self.name, "", "", 1, "")
        who = RunIdentity(state.job, state.lineage, state.run, state.target)
        place = self.places[self.at]
        return Coordinator(
            who, place, self._committer(), co_commit=False, patience=QUICK, observe=observe
        )


def walked(case: Case, random: Random, *, only_moves: bool = False, steps: int = 25) -> None:
    """Live one random history.

    Args:
        only_moves: nobody does anything but to rename and move the register of a job that writes.
    """
    walk = Walk(case, random)
    if only_moves:
        walk.acts = [walk.epoch, walk.rename, walk.move, walk.again]
    for _ in range(steps):
        walk.step()
    walk.settle()


class Pair(Walk):
    """A decided epoch, and two people: the second acts at one call of the first one's command.

    Args:
        lost: how many of its two handles an administrator has ended.
        at: the call of a register at which the second acts; from 0.
        second: the name of what the second does.
    """

    def __init__(self, case: Case, lost: int, at: int, second: str) -> None:
        super().__init__(case, Random(f"{lost} {at} {second}"))
        self._at, self._second = at, second
        run = self._run(Cut("commit"))
        with suppress(Halted):
            run.epoch(0, *parts(0))
        state = self._here()
        assert state is not None
        ended = [committable.handle for committable in state.open[0].committables[:lost]]
        self._committer().abort(ended)

    def _act(self, what: str, command: Callable[[], object]) -> None:
        left, second = self._at, self._second
        self._second = ""

        def before(changes: bool) -> None:
            nonlocal left
            left -= 1
            if left == -1:
                self._watch(lambda changes: None)
                getattr(self, second)()
                self._watch(before)

        if second:
            self._watch(before)
        with self._told(what):
            command()
        if second:
            self._watch(lambda changes: None)
