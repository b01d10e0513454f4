"""A sender comes to its end as soon as its brokers let it, whatever has failed before."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.routing import MissingPartitionError
from abs_core.errors import RowError, SchemaError, UnavailableError
from abs_sinks.kafka import KafkaOptions
from abs_sinks.kafka.columnar import encoder
from abs_sinks.kafka.columnar import sender as sending
from abs_sinks.kafka.columnar.outbox import Batch
from abs_sinks.kafka.columnar.recordbatch import ProducerIdentity
from abs_sinks.kafka.columnar.sender import ColumnarSender
from abs_sinks.kafka.columnar.transport import NO_ANSWER, Answer
from abs_sinks.kafka.records import plan_columns, records_of
from tests.sinks.kafka.standins import Broker

OPTIONS = KafkaOptions.parse(
    {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "producer": "columnar"}
)
WHO = ProducerIdentity("id", 1, 0)
PATIENCE = 100.0
OLD, NEW = 8, 9


@dataclass
class Clock:
    now: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return 0


@dataclass
class Scripted:
    """Answers as it is told to, at once; where there is nothing to answer, time goes by.

    Args:
        fates: of one request after another; then all is well.
    """

    clock: Clock
    fates: deque[str]
    answers: deque[Answer] = field(default_factory=deque)
    delivered: list[Batch] = field(default_factory=list)

    def add(self, partitions: Sequence[int]) -> UnavailableError | None:
        if self.fates and self.fates[0] == "no coordinator":
            self.fates.popleft()
            return UnavailableError("There is no coordinator.")
        return None

    def leaders(self, partitions: Iterable[int], *, remembered: bool) -> dict[int, int]:
        if self.fates and self.fates[0] == "no leader":
            self.fates.popleft()
            raise UnavailableError("There is no leader.")
        if self.fates and self.fates[0] == "unknown":
            self.fates.popleft()
            raise UnavailableError("There is no topic.") from MissingPartitionError("t")
        return {partition: partition % 2 for partition in partitions}

    def send(self, node: int, batches: Sequence[Batch]) -> None:
        fate = self.fates.popleft() if self.fates else "fine"
        if fate == "silence":
            self.clock.now += 15.0
        for number, batch in enumerate(batches):
            code = {"moved": 6, "one": 6 * (number == 0), "silence": NO_ANSWER, "gone": 3}.get(
                fate, 0
            )
            if not code:
                self.delivered.append(batch)
            self.answers.append(Answer(batch, code))

    def answer(self, seconds: float) -> Answer | None:
        if self.answers:
            return self.answers.popleft()
        self.clock.now += max(0.0, seconds)
        return None


@pytest.fixture
def clock(standins: list[Broker], monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    standins += [Broker(["t"], partitions=3)]
    cluster(OPTIONS.kafka).learn("request bytes", 0)
    monkeypatch.setattr(sending, "time", clock)
    monkeypatch.setattr(encoder, "GATHERED_BYTES", 1)
    return clock


def _sender(clock: Clock, fates: Iterable[str]) -> tuple[ColumnarSender, Scripted]:
    script = Scripted(clock, deque(fates))
    transport: Any = lambda *_: script  # noqa: E731
    return ColumnarSender(OPTIONS.kafka, "t", WHO, PATIENCE, transport=transport), script


def _send(sender: ColumnarSender, batches: int) -> None:
    for number in range(batches):
        batch = pa.record_batch({"key": [f"{number}-{n}" for n in range(20)], "value": ["v"] * 20})
        sender.send(records_of(batch, plan_columns(batch.schema, "t")))
    sender.flush()


def test_a_sender_looks_at_its_topic_once_for_all_its_batches(
    clock: Clock, standins: list[Broker]
) -> None:
    sender, script = _sender(clock, [])
    _send(sender, 5)
    assert len(script.delivered) > 1
    assert standins[0].looks == [["t"]]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["fine", "moved", "one", "silence", "gone", "no leader", "no coordinator", "unknown"]
        ),
        max_size=5,
    ),
    st.integers(0, 12),
)
def test_failures_cost_their_pauses_and_no_more(
    clock: Clock, fates: list[str], batches: int
) -> None:
    clock.now = 0.0
    sender, script = _sender(clock, fates)
    _send(sender, batches)
    assert sum(batch.count for batch in script.delivered) == 20 * batches
    # 20 ms, doubled with each failure without an acknowledgement between; and the silences themselves.
    assert clock.now <= 15.0 * fates.count("silence") + 0.02 * 2 ** len(fates)


def test_brokers_that_never_answer_are_given_up_when_patience_ends_with_the_reason(
    clock: Clock,
) -> None:
    sender, _ = _sender(clock, ["no leader"] * 100_000)
    with pytest.raises(UnavailableError, match="There is no leader"):
        _send(sender, 1)
    assert PATIENCE <= clock.now < PATIENCE + 2


@pytest.mark.parametrize("fate", ["gone", "unknown"])
def test_a_topic_that_no_broker_knows_for_a_while_is_told_long_before_patience_ends(
    clock: Clock, fate: str
) -> None:
    sender, script = _sender(clock, [fate] * 100_000)
    with pytest.raises(SchemaError, match="Topic t existed before and is gone now"):
        _send(sender, 1)
    assert 10 < clock.now < 20
    assert not script.delivered


def test_a_topic_that_some_broker_knows_now_and_then_is_not_given_up(
    clock: Clock,
) -> None:
    sender, script = _sender(clock, ["gone", "unknown", "gone", "moved"] * 20)
    _send(sender, 1)
    assert clock.now > 20
    assert sum(batch.count for batch in script.delivered) == 20


def test_an_acknowledgement_now_and_then_is_progress(
    clock: Clock,
) -> None:
    sender, _ = _sender(clock, ["silence", "silence", "fine"] * 30)
    _send(sender, 30)
    assert clock.now > PATIENCE


def test_a_refusal_ends_it_at_once(clock: Clock) -> None:
    sender, script = _sender(clock, [])
    script.send = lambda node, batches: script.answers.extend(  # type: ignore[method-assign]
        Answer(batch, 87, "no key") for batch in batches
    )
    with pytest.raises(RowError, match="no key"):
        _send(sender, 1)
    assert clock.now == 0.0


def test_a_partition_that_is_to_be_sent_again_waits_for_no_other(
    clock: Clock,
) -> None:
    """The second partition's broker is silent; the first is sent again after its pause."""
    sender, script = _sender(clock, [])
    sent: list[tuple[float, int]] = []

    def send(node: int, batches: Sequence[Batch]) -> None:
        for batch in batches:
            sent.append((clock.now, batch.partition))
            if batch.partition == 0:
                code = 6 if len([p for _, p in sent if p == 0]) == 1 else 0
                script.answers.append(Answer(batch, code))

    script.send = send  # type: ignore[method-assign]
    batch = pa.record_batch({"value": ["a", "b"], "partition": pa.array([0, 1], pa.int32())})
    sender.send(records_of(batch, plan_columns(batch.schema, "t")))
    with pytest.raises(UnavailableError):
        sender.flush()
    assert [at for at, partition in sent if partition == 0] == [0.0, 0.02]


def test_a_leader_from_memory_that_leads_no_more_costs_one_refusal_of_each_partition(
    clock: Clock,
) -> None:
    sender, script = _sender(clock, [])
    sent: list[int] = []

    def leaders(partitions: Iterable[int], *, remembered: bool) -> dict[int, int]:
        return dict.fromkeys(partitions, OLD if remembered else NEW)

    def send(node: int, batches: Sequence[Batch]) -> None:
        sent.extend(node for _ in batches)
        script.answers.extend(Answer(batch, 6 if node == OLD else 0) for batch in batches)

    script.leaders, script.send = leaders, send  # type: ignore[method-assign]
    partitions = pa.array([0, 1], pa.int32())
    batch = pa.record_batch({"value": ["a", "b"], "partition": partitions})
    for _ in range(2):
        sender.send(records_of(batch, plan_columns(batch.schema, "t")))
        sender.flush()
    assert Counter(sent) == {OLD: 2, NEW: 4}
