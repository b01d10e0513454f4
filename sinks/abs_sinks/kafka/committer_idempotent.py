"""Protocol idempotent: an epoch is committed by ONE transaction of its winners and the register.

So there is exactly one winners record for each decided epoch, and none for any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka import Producer

from abs_clients.kafka.attempts import BEGINNING, Decided
from abs_core.contracts import Conflict, Version
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
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._register = KafkaRegister(options)

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        """See ``Committer``. Records that were acknowledged are there: as good as prepared."""
        return {c.handle: Inspection(Outcome.PREPARED) for c in committables}

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        """See ``Committer``. For none: attempts are committed by ``co_commit``.

        Raises:
            ProtocolError: an attempt was given.
        """
        for committable in committables:
            raise ProtocolError(
                "A decision names an attempt of protocol=idempotent, which only the transaction of "
                "its epoch's winners commits.",
                job=committable.handle.job,
                epoch=committable.handle.epoch,
                handle=str(committable.handle),
                remedy="restart the query: its epoch is written again.",
            )
        return {}

    def abort(self, handles: Sequence[HandleName]) -> None:
        """Nothing: a loser's records stay, and are not read."""

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        return []

    def forget(self, state: JobState) -> None:
        """Nothing: the winners' records are the proof, and the topic's retention ends them."""

    def co_commit(
        self, committables: Sequence[Committable], expected: Version | None, state: JobState
    ) -> Version | Conflict:
        """See ``CoCommitter``. An epoch without rows has its winners record, too: its losers end."""
        if state.frontier is None:
            raise ProtocolError("A co-commit that finishes no epoch.", job=state.job)
        winners = tuple(sorted(c.handle for c in committables))
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
