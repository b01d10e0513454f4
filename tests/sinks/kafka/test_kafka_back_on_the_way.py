"""A topic goes back on a real broker while a run waits, and the run goes on: told before a decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from abs_core.errors import AbsError, RegisterLostError, TargetWentBackError
from abs_core.model import JobState, Shown
from abs_services import Provider, services
from abs_sinks.kafka.mark import Topics
from abs_testing import GoingBack
from abs_testing.case import JOB, Case, consent_in, raises, rows
from abs_testing.engine import Run
from tests.kit.kafka import delete_topics, make_topic
from tests.kit.kafka_restored import open_restored

pytestmark = [pytest.mark.services, pytest.mark.campaign, pytest.mark.timeout(300)]

WAYS = ["2pc", "2pc-librdkafka", "wal", "idempotent"]
FOREIGN = ["2pc-foreign-register", "wal-foreign-register"]
FIRST, SECOND, THIRD, LAST = rows(0, 3), rows(10, 2), rows(100, 60), rows(300, 1)
"""The third is long enough to hide what is gone of the second."""


@pytest.fixture(autouse=True)
def _own_broker() -> None:
    if services().provider is not Provider.NATIVE:
        pytest.skip("the broker's log is not ours")


def saved(harness: object) -> Callable[[], None]:
    assert isinstance(harness, GoingBack)
    return harness.backup()


def waiting(case: Case) -> tuple[Run, Callable[[], None]]:
    """A run that has finished epochs 0 and 1, and what takes its target back to epoch 0."""
    run = case.run()
    run.epoch(0, FIRST)
    back = saved(case.harness)
    run.epoch(1, SECOND)
    return run, back


@pytest.mark.parametrize("way", [*WAYS, *FOREIGN])
def test_a_topic_that_lost_its_end_is_told_whatever_the_run_has_written_since(way: str) -> None:
    with open_restored(way) as harness, Case(harness) as case:
        run, back = waiting(case)
        back()
        error = raises(TargetWentBackError, lambda: run.epoch(2, THIRD))
        assert "the 2 rows of the finished epoch(s) 1." in error.what
        assert run.state().last_decided == 1, "an epoch was decided on a topic that went back"
        case.run(adopt=consent_in(error)).epoch(2, THIRD)
        case.run().epoch(3, LAST)
        case.holds(FIRST, THIRD, LAST, when="after a topic that went back while a run went on")


@pytest.mark.parametrize("way", ["2pc", "wal-foreign-register", "idempotent"])
def test_marks_without_leaders_are_told_only_until_others_have_written(way: str) -> None:
    """Planted: as releases before noted them. What the run itself writes then hides the loss."""
    with open_restored(way) as harness, Case(harness) as case:
        run, back = waiting(case)
        run.store.compare_and_set(JOB, run.stored().version, without_leaders(run.state()))
        going_on = case.run()
        going_on.begin(2)
        back()
        going_on.epoch(2, THIRD)  # unnoticed
        case.holds(FIRST, THIRD, when="after a topic that went back unnoticed")


@pytest.mark.parametrize("way", ["2pc", "wal", *FOREIGN])
def test_a_topic_that_was_deleted_and_filled_anew_is_told(way: str) -> None:
    with open_restored(way) as harness, Case(harness) as case:
        run, _ = waiting(case)
        ends = harness.ends()
        delete_topics(harness.options.kafka, [harness.topic])
        make_topic(harness.options.kafka, harness.topic)
        harness.look_anew()
        for partition, end in ends.items():
            harness.add(partition, end)
        error = raises(TargetWentBackError, lambda: goes_on(case, run))
        assert "the 5 rows of the finished epoch(s) 0 to 1" in error.what
        assert run.state().last_decided == 1


@pytest.mark.parametrize("way", WAYS)
def test_a_broker_that_is_restored_as_a_whole_has_lost_the_register(way: str) -> None:
    with open_restored(way, whole=True) as harness, Case(harness) as case:
        run, back = waiting(case)
        back()
        raises(RegisterLostError, lambda: run.epoch(2, THIRD))
        case.holds(FIRST, when="after a run that was refused")


@pytest.mark.parametrize("way", FOREIGN)
def test_a_broker_that_is_restored_as_a_whole_is_told_by_a_register_elsewhere(way: str) -> None:
    with open_restored(way, whole=True) as harness, Case(harness) as case:
        run, back = waiting(case)
        back()
        raises(TargetWentBackError, lambda: goes_on(case, run))
        assert run.state().last_decided == 1


def goes_on(case: Case, run: Run) -> None:
    """As an engine does: what producers have open is gone, so a run may fail, and another starts."""
    for going in (run, None):
        try:
            (going or case.run()).epoch(2, THIRD)
        except TargetWentBackError:
            raise
        except AbsError as error:
            print(type(error).__name__, error)
        else:
            return


def without_leaders(state: JobState) -> JobState:
    def plain(shown: Shown) -> Shown:
        noted = Topics.read(shown.mark)
        topics = {name: replace(ends, leaders=()) for name, ends in noted.topics.items()}
        return replace(shown, mark=replace(noted, topics=topics).to_text())

    recent = tuple(replace(one, shown=tuple(map(plain, one.shown))) for one in state.recent)
    return replace(state, recent=recent)
