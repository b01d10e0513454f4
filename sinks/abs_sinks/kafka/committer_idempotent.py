"""Protocol idempotent: an epoch is committed by ONE transaction of its winners and the register.

So there is exactly one winners record for each decided epoch, and none for any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka import Producer

from abs_clients.kafka.attempts import BEGINNING, Decided
from abs_core.contracts import Committer, Conflict, Version
from abs_core.crash import CrashPoint
from abs_core.errors import ProtocolError
from abs_core.model import Committable, HandleName, InDoubt, Inspection, JobState, Outcome
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register import KafkaRegister
from abs_sinks.kafka.sending import Failures
from abs_sinks.kafka.winners import send_winners, winners_topic


class WinnersCommitter:
    """A ``CoCommitter``: the register must lie in the same cluster.

    Attempts leave nothing that could be aborted: a loser's records stay, and are not read.

    Args:
        others: acts on what the job left under other protocols.
    """

    def __init__(self, options: KafkaOptions, others: Committer) -> None:
        self._options = options
        self._others = others
        self._register = KafkaRegister(options)

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        """See ``Committer``. Records that were acknowledged are there: as good as prepared."""
        mine, theirs = _split(committables)
        found = dict(self._others.inspect(theirs)) if theirs else {}
        return found | {c.handle: Inspection(Outcome.PREPARED) for c in mine}

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        """See ``Committer``. For other protocols' handles: attempts are decided by ``co_commit``.

        Raises:
            ProtocolError: an attempt is among them.
        """
        mine, theirs = _split(committables)
        if mine:
            raise _wrong_protocol(mine[0])
        return self._others.commit(theirs) if theirs else {}

    def abort(self, handles: Sequence[HandleName]) -> None:
        if handles:
            self._others.abort(handles)

    def in_doubt(self, job: str) -> Sequence[InDoubt]:
        return self._others.in_doubt(job)

    def forget(self, state: JobState) -> None:
        self._others.forget(state)

    def co_commit(
        self, committables: Sequence[Committable], expected: Version | None, state: JobState
    ) -> Version | Conflict:
        """See ``CoCommitter``. An epoch without rows has its winners record, too: its losers end."""
        mine, theirs = _split(committables)
        if theirs:
            raise _wrong_protocol(theirs[0])
        if state.frontier is None:
            raise ProtocolError("A co-commit that finishes no epoch.", job=state.job)
        winners = tuple(sorted(c.handle for c in mine))
        place = state.generation, state.frontier
        before = [each.epoch for each in state.recent if each.epoch < state.frontier]
        after = max(before, default=BEGINNING)
        decided = Decided(state.register, state.job, *place, winners, after=after)
        topic = winners_topic(self._options, state.job, again=True)

        def send(producer: Producer, failures: Failures) -> None:
            send_winners(producer, failures, topic, decided)

        return self._register.swap(
            state.job, expected, state, send, point=CrashPoint.INSIDE_CO_COMMIT
        )


def _split(committables: Sequence[Committable]) -> tuple[list[Committable], list[Committable]]:
    mine = [c for c in committables if dict(c.extra).get("protocol") == "idempotent"]
    return mine, [c for c in committables if c not in mine]


def _wrong_protocol(committable: Committable) -> ProtocolError:
    return ProtocolError(
        "A handle was not made under the protocol that is to commit it.",
        job=committable.handle.job,
        epoch=committable.handle.epoch,
        handle=str(committable.handle),
        remedy="restart the query: its epoch is written again.",
    )
