"""From any state, one more run that nobody disturbs brings the job to its end."""

from __future__ import annotations

from abs_core import protocol
from abs_core.model import Committable, HandleName, JobState
from abs_core.protocol import Changed, Refused, RunIdentity, Skip, Unchanged, Verdict
from tests.model.exhaustive.book import JOB, REGISTER, TARGET, Book, Violated
from tests.model.exhaustive.drivers import complete
from tests.model.exhaustive.effects import VISIBLE
from tests.model.exhaustive.world import STATUS, Handle, World


class _Alone:
    """A run's whole life, step after step, with the real rules."""

    def __init__(self, book: Book, world: World) -> None:
        self.book = book
        self.state = book.state(world.register) if world.register else None
        run = (
            0
            if self.state is None
            else int(self.state.run.removeprefix("run").removesuffix(protocol.ENDED))
        )
        self.spec = book.config.runs[run]
        self.content = book.content_of[run]
        self.who = RunIdentity(JOB, self.spec.lineage, "fresh", TARGET)
        self.handles: dict[HandleName, int] = {}
        self.written: list[HandleName] = []
        for writer in book.writers:
            status = world.handles[writer.place] & STATUS
            if status != Handle.ABSENT:
                generation = book.generation(world.register, writer.run)
                self.handles[writer.handle(generation)] = status

    def live(self) -> None:
        self._change(protocol.start(self.state, self.who, REGISTER))
        self._sweep()
        for epoch in range(self.spec.first, self.book.config.epochs):
            self._epoch(epoch)

    def _epoch(self, epoch: int) -> None:
        planned = protocol.plan(self._state, self._state.generation, epoch)
        if isinstance(planned, Refused):
            raise Violated(f"a fresh run is refused: {planned.error}")
        committables = []
        if not isinstance(planned, Skip):
            for partition in range(self.spec.partitions):
                generation = self._state.generation
                name = HandleName(REGISTER, JOB, generation, epoch, partition, "f")
                self.handles[name] = Handle.PREPARED
                self.written.append(name)
                committables.append(Committable(name, 1, "none:"))
        self._roll_forward()
        rule = protocol.co_commit if self.book.config.co_commits else protocol.decide
        fingerprint = f"{self.spec.content} {epoch}"
        state = self._state
        before = state.last_decided
        self._change(
            rule(state, state.generation, epoch, committables, fingerprint=fingerprint, rows=1)
        )
        if self.book.config.co_commits and before != self._state.last_decided:
            self.handles.update((c.handle, Handle.FORGOTTEN) for c in committables)
        self._roll_forward()
        self._tidy()

    def _roll_forward(self) -> None:
        while self._state.open:
            decision = self._state.open[0]
            for handle in decision.handles:
                found = self.handles.get(handle, Handle.ABSENT)
                if found not in (Handle.PREPARED, Handle.COMMITTED):
                    raise Violated(f"I7: a fresh run finds {handle} {Handle(found).name}")
                self.handles[handle] = Handle.COMMITTED
            self._change(protocol.finish(self._state, decision))

    def _tidy(self) -> None:
        for handle, found in self.handles.items():
            mine = self._state.generation
            if found == Handle.COMMITTED and protocol.sweepable(self._state, mine, handle):
                self.handles[handle] = Handle.FORGOTTEN
        self._sweep()

    def _sweep(self) -> None:
        for handle, found in self.handles.items():
            mine = self._state.generation
            if found == Handle.PREPARED and protocol.sweepable(self._state, mine, handle):
                self.handles[handle] = Handle.ABORTED

    def _change(self, verdict: Verdict) -> None:
        if isinstance(verdict, Refused):
            raise Violated(f"a fresh run is refused: {verdict.error}")
        assert isinstance(verdict, Changed | Unchanged)
        self.state = verdict.state

    @property
    def _state(self) -> JobState:
        assert self.state is not None
        return self.state


def check_recovery(book: Book, world: World) -> None:
    """One more run, alone, makes every epoch of the job visible once, and leaves nothing behind.

    Raises:
        Violated: it is refused, loses a row, doubles one, or leaves a handle or a marker.
    """
    alone = _Alone(book, world)
    alone.live()
    left = {h: s for h, s in alone.handles.items() if s in (Handle.PREPARED, Handle.COMMITTED)}
    if left:
        raise Violated(f"a fresh run leaves {left} behind")
    handles = _after(book, world, alone)
    for epoch in range(alone.spec.first, book.config.epochs):
        mine = [alone.handles[name] for name in alone.written if name.epoch == epoch]
        by_fresh = sum(status in VISIBLE for status in mine) == alone.spec.partitions
        by_old = complete(book, handles, alone.content, epoch)
        if by_fresh == by_old:
            raise Violated(f"after a fresh run, epoch {epoch} is visible {by_fresh + by_old} times")


def _after(book: Book, world: World, alone: _Alone) -> tuple[int, ...]:
    """The statuses of the old writers' handles, after the fresh run."""
    codes = list(world.handles)
    for writer in book.writers:
        if codes[writer.place] & STATUS != Handle.ABSENT:
            generation = book.generation(world.register, writer.run)
            codes[writer.place] = alone.handles[writer.handle(generation)]
    return tuple(codes)
