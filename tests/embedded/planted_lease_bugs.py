"""The lease, or what keeps a late leader from writing, with one rule broken at a time."""

from __future__ import annotations

from collections.abc import Sequence

from abs_core.errors import FencedError
from abs_core.model import Committable
from abs_embedded.lease import Lease
from tests.model.simulation.run import Bugs
from tests.model.simulation.world import Keeper, Target, World


class WaitsForNobody(Lease):
    """A standby takes over as soon as it looks."""

    def attempt(self) -> bool | None:
        self.seconds = 0
        return super().attempt()


class TakesBack(Lease):
    """A renewal writes over what another process has written meanwhile."""

    def renew(self) -> None:
        stored = self.store.load(self._key)
        assert stored is not None
        self._version = stored.version
        super().renew()


class NeverExpires(Lease):
    """A standby waits until the leader gives up its lease by itself."""

    def attempt(self) -> bool | None:
        self._since = self.clock()
        return super().attempt()


class DoneIsFree(Lease):
    """A job that is done is left to the next one."""

    def release(self, *, done: bool) -> None:
        super().release(done=False)


class CommitsLate(Keeper):
    """A leader that is fenced commits what it had prepared for the decision."""

    def decide(self, checkpoint: int, handles: Sequence[Committable], fingerprint: str) -> None:
        try:
            super().decide(checkpoint, handles, fingerprint)
        except FencedError:
            Target(self._world).commit(handles)
            raise


class RaisesNoGeneration(Keeper):
    """Who takes over goes on in the generation of the leader before."""

    def __init__(self, world: World, run: str) -> None:
        super().__init__(world, "run1")


PLANTED_LEASE: dict[str, tuple[type[Lease], Bugs]] = {
    "a standby takes over at once": (WaitsForNobody, Bugs()),
    "a renewal takes the lease back": (TakesBack, Bugs()),
    "a lease never runs out": (NeverExpires, Bugs()),
    "what is done is led again": (DoneIsFree, Bugs()),
    "a leader that is fenced commits what it has": (Lease, Bugs(keeper=CommitsLate)),
    "who takes over raises no generation": (Lease, Bugs(keeper=RaisesNoGeneration)),
}
"""What is broken -> the lease and the parts that break it."""
