"""A broker that stands still at the decision: what would expire is written again, not decided late."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from abs_core.contracts import Conflict, Version
from abs_core.coordinator import Coordinator, Report
from abs_core.errors import NotPreparedError, UnavailableError
from abs_core.model import JobState
from abs_core.patience import Patience
from abs_services import KafkaService
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register.session import Rows
from abs_sinks.kafka.register.store import KafkaRegister
from abs_testing.case import Case, raises, rows
from tests.kit.kafka import TopicHarness, Variant, open_topic
from tests.outage import Away, standing_still

pytestmark = [pytest.mark.services, pytest.mark.campaign, pytest.mark.timeout(600)]

ROWS, MORE = rows(0, 3), rows(10, 3)
TIMEOUT_MS = 90_000
"""After which the broker aborts a transaction."""
PATIENCE = Patience(seconds=60.0, request=5.0)
"""A decision must be in place 25 s after the transaction began, at the latest."""


class _Register(KafkaRegister):
    """Its broker stands still from the first decision on."""

    def __init__(self, options: KafkaOptions, outage: Away) -> None:
        super().__init__(options)
        self._outage: Away | None = outage

    def compare_and_set(
        self,
        job: str,
        expected: Version | None,
        state: JobState,
        deadline: float | None = None,
        *,
        rows: Rows | None = None,
    ) -> Version | Conflict:
        if state.open and self._outage is not None:
            outage, self._outage = self._outage, None
            outage.begin()
        return super().compare_and_set(job, expected, state, deadline, rows=rows)


@pytest.fixture
def harness(kafka: KafkaService) -> Iterator[TopicHarness]:
    kafka.start()
    with open_topic(kafka.bootstrap, Variant("2pc", own_register=True)) as harness:
        settings = harness.options.kafka
        given = {**dict(settings.pairs), "transaction.timeout.ms": str(TIMEOUT_MS)}
        short = replace(settings, pairs=tuple(sorted(given.items())))
        common = replace(harness.options.common, patience=PATIENCE.seconds)
        harness.new_sink = harness.sink_for(replace(harness.options, kafka=short, common=common))
        yield harness


def test_an_epoch_whose_decision_met_a_broker_that_stood_still_is_written_again(
    kafka: KafkaService, harness: TopicHarness, case: Case
) -> None:
    case.run().epoch(0, ROWS)
    with Away(kafka, standing_still, 40.0) as outage:
        run = case.run()
        shares = run.tasks(1, MORE)
        register = _Register(harness.options, outage)
        coordinator = Coordinator(run.who, register, run.committer, patience=PATIENCE)
        error = raises(NotPreparedError, lambda: coordinator.commit(Report(1, shares, None)))
    assert "written again" in error.remedy
    state = run.state()
    assert state.open == (), "it was decided, with less time left than committing may take"
    assert state.abandoned == (1,)
    while True:
        try:
            case.run().epoch(1, MORE)
            break
        except UnavailableError:
            continue  # a broker that has stood still gathers itself; pytest's timeout ends this
    case.finished(ROWS, MORE, when="after the epoch was written again")
    assert harness.hidden() == 0, "a transaction is left open"
