"""A transaction that its broker has timed out: replayed before the decision, never lost in silence."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from abs_clients.kafka.transactions import State, describe
from abs_core.coordinator import Coordinator, Report
from abs_core.errors import FencedError, HandleLostError, NotPreparedError
from abs_core.model import Inspection, JobState, Outcome, Wrote
from abs_core.patience import DEFAULT_PATIENCE, Patience
from abs_services import KafkaService
from abs_services.native.kafka import NativeKafka
from abs_sinks.kafka import KafkaOptions, twophase
from abs_sinks.kafka.open_transaction import OpenTransaction
from abs_testing.case import Case, raises, rows, within
from abs_testing.cuts import Cut, Halted
from abs_testing.engine import Run
from tests.kit.kafka import TopicHarness, Variant, open_topic, send_now
from tests.planted import planted

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]

LEFT, RIGHT, MORE = rows(0, 3), rows(10, 3), rows(20, 3)


BY_EITHER = pytest.mark.parametrize("producer", ["librdkafka", "columnar"])


@pytest.fixture
def producer() -> str:
    return "librdkafka"


@pytest.fixture
def harness(kafka: KafkaService, producer: str) -> Iterator[TopicHarness]:
    kafka.start()
    variant = Variant("2pc", own_register=False, producer=producer)
    with open_topic(kafka.bootstrap, variant) as harness:
        yield harness


def test_what_has_too_little_time_left_is_not_decided(case: Case, harness: TopicHarness) -> None:
    harness.new_sink = harness.sink_for(_short(harness, 29_000))
    run = case.run()
    shares = run.tasks(0, LEFT)
    error = raises(NotPreparedError, lambda: run.commit(0, shares))
    assert "s left" in str(error)
    assert run.state().open == ()


def test_a_timeout_before_and_after_the_decision_is_seen(case: Case, harness: TopicHarness) -> None:
    # Decided: of two handles one has a short timeout; the coordinator dies after the decision.
    run = case.run("decided")
    kept = run.task(0, 0, LEFT)
    long, harness.new_sink = harness.new_sink, harness.sink_for(_short(harness))
    lost = case.run("decided", run=run.who.run).task(0, 1, RIGHT)
    undecided = case.run("undecided")
    replayed = undecided.task(0, 0, MORE)
    harness.new_sink = long
    # Any time left will do for it: else it would not decide what is about to end.
    careless = Patience(seconds=0.0, request=0.0)
    cut = Cut("commit")
    halted = Run(
        case.sink(), "decided", run=run.who.run, store=run.store, cut=cut, patience=careless
    )
    raises(Halted, lambda: halted.commit(0, [kept, lost]))
    assert isinstance(lost, Wrote)
    committable = lost.committable
    assert committable is not None
    name = str(committable.held_as)

    def aborted() -> bool:
        now = describe(harness.options.kafka, [name])[name]
        return now is not None and now.state is State.COMPLETE_ABORT

    assert within(60, aborted), "the broker does not time the transaction out"
    found = run.committer.inspect([committable])[committable.handle]
    assert found.outcome is Outcome.ABORTED

    # Before the decision: nothing is lost, the epoch is written again.
    assert within(60, lambda: not harness.leftovers("undecided"))
    raises(NotPreparedError, lambda: undecided.commit(0, [replayed]))
    case.run("undecided").epoch(0, MORE)

    # After it: an error that names the handle, what else of the epoch is there, and the way out.
    error = raises(HandleLostError, lambda: case.run("decided").epoch(0, LEFT, RIGHT))
    assert error.handle == str(committable.handle)
    assert f"{harness.topic}-" in str(error), "the offsets of the epoch's other handle"
    assert "accept-loss" in str(error)
    assert run.state().open, "the decision stays"
    case.holds(LEFT, MORE, when="after a handle was lost")
    assert harness.hidden() == 0


@BY_EITHER
def test_a_zombie_is_fenced_by_the_sweep_of_its_successor(case: Case) -> None:
    zombie = case.run().attempt(0).write(*LEFT)
    send_now(zombie.writer)
    case.run().begin(0)
    raises(FencedError, lambda: zombie.write(*RIGHT).pre_commit())
    zombie.writer.abort()
    case.run().epoch(0, LEFT)
    case.finished(LEFT, when="after a zombie was fenced")


@BY_EITHER
def test_a_task_that_writes_for_too_long_is_told_of_the_timeout(
    case: Case, harness: TopicHarness
) -> None:
    harness.new_sink = harness.sink_for(_short(harness))
    slow = case.run().attempt(0).write(*LEFT)
    send_now(slow.writer)
    assert within(60, lambda: not harness.open_ids()), "the broker does not time it out"
    error = raises(NotPreparedError, lambda: slow.write(*RIGHT).pre_commit())
    assert "kafka.transaction.timeout.ms" in str(error)
    slow.writer.abort()


class _Clock:
    """The driver's clock: so many seconds ahead of the broker's."""

    def __init__(self, ahead: float) -> None:
        self._ahead = ahead

    def time(self) -> float:
        return time.time() + self._ahead

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def test_a_driver_whose_clock_is_ahead_is_told_so_and_writes_the_epoch_when_it_is_set(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = case.run()
    shares = run.tasks(0, LEFT)
    with monkeypatch.context() as shifted:
        shifted.setattr(twophase, "time", _Clock(3600.0))
        error = raises(NotPreparedError, lambda: run.commit(0, shares))
    assert "set it if it is ahead of the brokers' clocks" in error.remedy
    assert run.state().open == ()
    case.holds(when="after a decision by a clock that is ahead was refused")
    case.run().epoch(0, LEFT)
    case.finished(LEFT, when="after the clock was set")


def test_a_driver_whose_clock_is_behind_decides_at_once_or_not_at_all(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(twophase, "time", _Clock(-3600.0))
    case.run().epoch(0, LEFT)
    case.finished(LEFT, when="after an epoch by a clock that is behind")
    error = raises(NotPreparedError, lambda: _commit_late(case))
    assert "clock is behind the brokers' clocks: set it" in error.remedy
    case.holds(LEFT, when="after a decision that came late")
    # The same wait is short enough where the time left is known.
    monkeypatch.setattr(twophase, "time", time)
    _commit_late(case)
    case.finished(LEFT, MORE, when="after the clock was set")


def test_a_clock_that_is_behind_and_is_trusted_is_found(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = _Clock(-3600.0)

    def trusting(prepared: OpenTransaction, *_: object) -> Inspection:
        ends = (prepared.start_ms + prepared.timeout_ms) / 1000
        return Inspection(Outcome.PREPARED, ends - clock.time())

    monkeypatch.setattr(twophase, "time", clock)
    with planted((twophase, "_inspection", trusting), match="NotPreparedError"):
        raises(NotPreparedError, lambda: _commit_late(case))


def _commit_late(case: Case) -> None:
    """A minute passes between the look at epoch 1's handles and its decision."""
    run = case.run()
    late = count(step=2 * DEFAULT_PATIENCE.request)
    report = Report(1, run.tasks(1, MORE), None, gaps_allowed=True)
    parts = run.who, run.store, run.committer
    Coordinator(*parts, clock=lambda: time.monotonic() + next(late)).commit(report)


FORGETFUL = {
    "transactional.id.expiration.ms": "1000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
}


@pytest.fixture
def forgetful() -> Iterator[TopicHarness]:
    variant = Variant("2pc", own_register=False)
    with NativeKafka(settings=FORGETFUL) as kafka, open_topic(kafka.bootstrap, variant) as harness:
        yield harness


@pytest.mark.campaign
@pytest.mark.parametrize("noted", [False, True])
def test_rows_whose_commit_the_broker_has_forgotten_are_not_told_as_lost(
    forgetful: TopicHarness, noted: bool
) -> None:
    case = Case(forgetful)
    # The driver dies between EndTxn and the register's note, or behind the note.
    run = case.run(cut=Cut("forget" if noted else "compare_and_set", where=_is_finished))
    share = run.task(0, 0, LEFT)
    assert isinstance(share, Wrote)
    assert share.committable is not None
    name, settings = str(share.committable.held_as), forgetful.options.kafka
    raises(Halted, lambda: run.commit(0, [share]))
    assert within(60, lambda: describe(settings, [name])[name] is None)
    if noted:
        case.run().epoch(0, LEFT)
    else:
        error = raises(HandleLostError, lambda: case.run().epoch(0, LEFT))
        assert "does not tell whether they were committed" in error.what
        assert "not in the target" not in error.what
        assert error.remedy.startswith(f"look at {forgetful.topic}-0 from 0 ("), "its offsets"
    case.holds(LEFT, when="after the broker forgot the transaction")
    case.close()


def _is_finished(state: JobState) -> bool:
    return state.frontier is not None


def _short(harness: TopicHarness, milliseconds: int = 8000) -> KafkaOptions:
    """The broker aborts what is open for longer: a busy machine prepares and decides before."""
    settings = harness.options.kafka
    given = {**dict(settings.pairs), "transaction.timeout.ms": str(milliseconds)}
    return replace(harness.options, kafka=replace(settings, pairs=tuple(sorted(given.items()))))
