"""One epoch of the protocol by hand: the rules alone, with a variable in place of the register."""

from __future__ import annotations

from abs_core import protocol
from abs_core.model import Committable, HandleName, JobState
from abs_core.protocol import Changed, Refused, RunIdentity, Skip, Unchanged, Verdict, Write


def stored(verdict: Verdict) -> JobState:
    """What a compare-and-set would store."""
    assert isinstance(verdict, Changed), verdict
    return verdict.state


def main() -> None:
    # A run starts: it raises the generation, once.
    run = RunIdentity(job="payments", lineage="query-1", run="run-1", target="db.payments")
    state = stored(protocol.start(None, run, new_register="0123456789abcdef"))
    first = state.generation
    assert isinstance(protocol.plan(state, first, epoch=0), Write)

    # A task has pre-committed three rows; the decision names its handle, and nothing else does.
    handle = HandleName(state.register, "payments", first, epoch=0, partition=0, attempt="a1")
    rows = [Committable(handle, rows=3, digest="xxh3_64:0")]
    offsets = "a digest of the epoch's offsets"
    decided = stored(protocol.decide(state, first, 0, rows, fingerprint=offsets, rows=3))

    # A crash here loses nothing: whoever comes next finds the decision and commits its handles.
    later = RunIdentity(job="payments", lineage="query-1", run="run-2", target="db.payments")
    state = stored(protocol.start(decided, later, new_register="fedcba9876543210"))
    (open_decision,) = state.open
    assert not protocol.sweepable(state, state.generation, handle), "a decision names it"
    state = stored(protocol.finish(state, open_decision))
    assert state.frontier == 0

    # Applied again, a rule changes nothing: so a lost reply needs no guess.
    assert isinstance(protocol.finish(state, open_decision), Unchanged)

    # Spark replays the epoch: it is skipped, if it is the same one.
    assert isinstance(protocol.plan(state, state.generation, epoch=0), Skip)
    other = protocol.decide(state, state.generation, 0, rows, fingerprint="another one", rows=3)
    assert isinstance(other, Refused)

    # The first run is a zombie now: its decision is refused.
    zombie = protocol.decide(state, first, 1, [], fingerprint=None, rows=0)
    assert isinstance(zombie, Refused)
    print(zombie.error)


if __name__ == "__main__":
    main()
