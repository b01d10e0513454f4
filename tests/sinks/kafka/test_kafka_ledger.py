"""Protocol wal, the register elsewhere: the ledger says what is committed, as long as it must."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from abs_clients.kafka.cluster import close_clusters
from abs_clients.kafka.topics import topic_facts
from abs_core.coordinator import Coordinator
from abs_core.errors import ConfigError, CorruptionError, HandleLostError, UnavailableError
from abs_core.model import Decision, HandleName, Outcome, Wrote
from abs_core.patience import Patience
from abs_core.wal import FolderSegments
from abs_services import KafkaService
from abs_sinks.kafka.ledger import LedgerPlace
from abs_sinks.kafka.register.session import session_of
from abs_sinks.kafka.register.store import KafkaRegister
from abs_sinks.kafka.register.topic import make_topic
from abs_sinks.kafka.wal import WalCommitter
from abs_testing.case import JOB, Case, raises, rows, within
from abs_testing.cuts import Cut, Halted
from abs_testing.engine import Run
from tests.kit.kafka import Variant, delete_topics
from tests.kit.kafka_modes import LogHarness, open_log

pytestmark = pytest.mark.services

LEFT, RIGHT, MORE = rows(0, 3), rows(10, 3), rows(20, 3)


class Undeletable(FolderSegments):
    """The log, where nothing can be deleted: a mount that is read-only now, a bucket's policy."""

    def delete(self, handles: Sequence[HandleName]) -> None:
        raise UnavailableError(f"{len(handles)} segments cannot be deleted (on purpose).")


@pytest.fixture
def harness(kafka: KafkaService) -> Iterator[LogHarness]:
    kafka.start()
    with open_log(kafka.bootstrap, Variant("wal", own_register=False)) as harness:
        yield harness


def decided(case: Case) -> tuple[Run, Decision]:
    """A run that stands still after its decision on epoch 0, before its commit."""
    run = case.run(cut=Cut("commit"))
    raises(Halted, lambda: run.epoch(0, LEFT, RIGHT))
    return run, run.state().open[0]


def test_a_commit_that_comes_after_the_end_sends_nothing_again_though_its_segments_are_there(
    case: Case, harness: LogHarness
) -> None:
    slow, decision = decided(case)
    following = case.run()
    drained = following.tasks(0, LEFT, RIGHT)
    stuck = WalCommitter(harness.options, Undeletable(harness.folder))
    following.coordinator = Coordinator(
        following.who, following.store, stuck, co_commit=False, patience=Patience(0.1)
    )
    following.commit(0, drained)
    assert following.state().open == ()
    left = {entry.handle for entry in FolderSegments(harness.folder).list(JOB)}
    assert left == decision.handles, "the segments could not be deleted"

    told = slow.committer.commit(decision.committables)
    assert set(told.values()) == {Outcome.COMMITTED}
    case.holds(LEFT, RIGHT, when="after the commit of a coordinator that had stood still")
    case.run().epoch(1, MORE)  # its start sweeps the segments, and its end forgets the proof
    case.finished(LEFT, RIGHT, MORE, when="after the segments could be deleted again")


def sent(case: Case, harness: LogHarness) -> Decision:
    """Epoch 0 is decided and sent, as the ledger says; its driver died before all that comes after."""
    _, decision = decided(case)
    dead = WalCommitter(harness.options, Undeletable(harness.folder))
    assert set(dead.commit(decision.committables).values()) == {Outcome.COMMITTED}
    session_of(harness.options).close()
    return decision


def test_another_registers_topic_between_sending_and_finish_is_refused_and_nothing_is_sent_again(
    case: Case, harness: LogHarness
) -> None:
    sent(case, harness)
    own, other = harness.options, replace(harness.options, registertopic=f"{harness.topic}-other")
    harness.new_sink = harness.sink_for(other)
    error = raises(ConfigError, lambda: case.run().epoch(0, LEFT, RIGHT))
    assert f"set registertopic={own.registertopic}" in str(error)
    case.holds(LEFT, RIGHT, when="after a start with another registertopic")
    harness.new_sink = harness.sink_for(own)
    case.run().epoch(0, LEFT, RIGHT)
    harness.new_sink = harness.sink_for(other)
    case.run().epoch(1, MORE)
    case.holds(LEFT, RIGHT, MORE, when="after it was changed between two epochs")
    session_of(other).close()
    delete_topics(other.kafka, list(topic_facts(other.kafka, [other.registertopic], again=True)))


def test_a_registers_topic_that_was_deleted_between_sending_and_finish_is_told_and_nothing_sent(
    case: Case, harness: LogHarness
) -> None:
    decision = sent(case, harness)
    options = harness.options
    delete_topics(options.kafka, [options.registertopic])
    assert within(30, lambda: KafkaRegister(options).load(JOB) is None)
    make_topic(options.kafka, options.registertopic)
    close_clusters(options.kafka)  # the next driver is another process
    error = raises(CorruptionError, lambda: case.run().epoch(0, LEFT, RIGHT))
    assert "accept-loss job 0" in str(error)
    case.holds(LEFT, RIGHT, when="after a start without the ledger")

    # What the error says: a person has seen the records, and lets the job go on.
    FolderSegments(harness.folder).delete(list(decision.handles))
    following = case.run()
    drained = following.tasks(0, LEFT, RIGHT)
    raises(HandleLostError, lambda: following.commit(0, drained))
    following.coordinator.accept_loss(0, decision.committables)
    following.epoch(1, MORE)
    case.finished(LEFT, RIGHT, MORE, when="after a person let the job go on")


def test_a_segment_says_where_its_ledger_lies_and_one_that_does_not_is_committed_as_before(
    case: Case, harness: LogHarness
) -> None:
    slow, decision = decided(case)
    topic = harness.options.registertopic
    facts = topic_facts(harness.options.kafka, [topic], again=True)[topic]
    places = [LedgerPlace.of(c) for c in decision.committables]
    assert {(p.topic, p.id) for p in places if p is not None} == {(topic, facts.id)}
    assert None not in places
    older = [
        replace(c, extra=tuple((k, v) for k, v in c.extra if k in ("length", "protocol")))
        for c in decision.committables
    ]
    assert {LedgerPlace.of(c) for c in older} == {None}
    assert set(slow.committer.commit(older).values()) == {Outcome.COMMITTED}
    case.holds(LEFT, RIGHT, when="after the commit of segments of an older release")


def test_a_segment_whose_proof_is_the_register_names_no_ledger(kafka: KafkaService) -> None:
    kafka.start()
    with open_log(kafka.bootstrap, Variant("wal")) as harness, Case(harness) as case:
        (share,) = case.run().tasks(0, LEFT)
        assert isinstance(share, Wrote)
        assert share.committable is not None
        assert [name for name, _ in share.committable.extra] == ["length", "protocol"]
