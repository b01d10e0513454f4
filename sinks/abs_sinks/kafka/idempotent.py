"""Protocol idempotent: records are sent at once, each with a header that names its attempt.

They are visible before the epoch is decided, and a losing attempt's stay; so are dead letters in their
topic. ONE transaction of winners record and register commits an epoch, so each decided epoch has
exactly one winners record for each topic, and no other epoch has any. A reader by winners
(``abs_clients.kafka.attempts``) sees each record once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from abs_clients.kafka.attempts import BEGINNING, Decided, header_of
from abs_core.contracts import Committer, Conflict, Task, Version
from abs_core.crash import CrashPoint
from abs_core.errors import ProtocolError
from abs_core.model import (
    Committable,
    HandleName,
    InDoubt,
    Inspection,
    JobState,
    Outcome,
    Shown,
)
from abs_core.routing import none_to_commit
from abs_sinks.kafka import lookback
from abs_sinks.kafka.headers import encoded_headers
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.places import TopicIds
from abs_sinks.kafka.records import Digest, Records
from abs_sinks.kafka.register.session import Rows
from abs_sinks.kafka.register.store import KafkaRegister
from abs_sinks.kafka.sending import ByTopic, RecordSender, outside_transactions
from abs_sinks.kafka.side_topic import data_topic, send_winners, winners_topics
from abs_sinks.kafka.writer import RecordWriter


class IdempotentWriter(RecordWriter):
    """Sends with an idempotent producer of its own, outside any transaction."""

    def __init__(self, options: KafkaOptions, schema: pa.Schema, task: Task) -> None:
        self._header = header_of(task.handle)
        added = len(encoded_headers(None, [self._header]))
        super().__init__(options, schema, task, more_bytes=added)
        self._sender: RecordSender | None = None
        self._ids = TopicIds(options, task)
        self._digest = Digest()

    def abort(self) -> None:
        if self._sender is not None:
            self._sender.abort()
            self._sender = None

    def _keep_checked(self, batch: pa.RecordBatch | None, checked: Records) -> None:
        """See ``RecordWriter``.

        Raises:
            PreflightError: the topic is compacted, or its side topic would lose winners.
        """
        if self._sender is None:
            self._sender = self._patience.retry(self._begin)
        self._ids.before(checked)
        self._digest.feed(checked)
        self._sender.send(checked)

    def _begin(self) -> RecordSender:
        # Before the first record, which could not be taken back.
        winners_topics(self._options, self._task.job)
        topic = data_topic(self._options)
        if self._options.letters is None:
            return self._sender_to(topic)
        return ByTopic(self._sender_to, topic)

    def _sender_to(self, topic: str) -> RecordSender:
        return outside_transactions(replace(self._options, topic=topic), [self._header])

    def _complete(self) -> None:
        assert self._sender is not None
        self._sender.flush()

    def _prepared(self) -> Committable:
        assert self._sender is not None
        sender, self._sender = self._sender, None
        extra = tuple(sorted({"protocol": "idempotent", **self._ids.extra}.items()))
        return Committable(self._task.handle, sender.rows, self._digest.text, extra)


class IdempotentCommitter(Committer):
    """A ``Committer`` that co-commits: the register must be in the same cluster."""

    co_commits = True

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._register = KafkaRegister(options)

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        """See ``Committer``. Acknowledged records count as prepared."""
        return {c.handle: Inspection(Outcome.PREPARED) for c in committables}

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        """Raise ``ProtocolError`` if an attempt is given: only ``co_commit`` commits them."""
        return none_to_commit(
            committables,
            "A decision names an attempt of protocol=idempotent, which only the transaction of "
            "its epoch's winners commits.",
            "restart the query: its epoch is written again.",
        )

    def abort(self, handles: Sequence[HandleName]) -> None:
        """Nothing: a loser's records stay, and are not read."""

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        return []

    def forget(self, state: JobState) -> None:
        """Nothing: the winners records are the proof, and the topic's retention deletes them."""

    def shown(self, committables: Sequence[Committable]) -> Sequence[Shown]:
        """See ``Committer``. The records are there since they were pre-committed."""
        return lookback.shown(self._options, committables)

    def co_commit(
        self, committables: Sequence[Committable], expected: Version | None, state: JobState
    ) -> Version | Conflict:
        """See ``Committer``. An epoch without rows gets a winners record too, against its losers."""
        if state.frontier is None:
            raise ProtocolError(
                "co_commit was called with a state in which no epoch is finished.", job=state.job
            )
        winners = tuple(sorted(c.handle for c in committables))
        before = [recent.epoch for recent in state.recent if recent.epoch < state.frontier]
        after = max(before, default=BEGINNING)
        decided = Decided(
            state.register, state.job, state.generation, state.frontier, winners, after=after
        )
        topics = winners_topics(self._options, state.job, again=True)
        send = partial(send_winners, topics=topics, decided=decided)
        rows = Rows(send, point=CrashPoint.INSIDE_CO_COMMIT)
        return self._register.compare_and_set(state.job, expected, state, rows=rows)
