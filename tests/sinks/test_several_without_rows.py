"""An epoch over two sinks, in which one has no rows: its look before the decision is of that moment.

What that sink saw when it had rows last is older than what was noted of them then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from abs_core.coordinator import Report
from abs_core.errors import TargetWentBackError
from abs_core.lookback import Past
from abs_core.model import Committable, Wrote
from abs_sinks.postgres.testing import Variant as TableVariant
from abs_sinks.postgres.testing import open_table
from abs_sinks.s3.testing import open_folder
from abs_testing import Row
from abs_testing.case import rows
from abs_testing.fault_injection import Wire
from abs_testing.harness import batch_of
from tests.core.several_sinks import Run, System, World, fake
from tests.kit.kafka import PARTITIONS, TopicHarness
from tests.kit.kafka_modes import open_variant
from tests.planted import Bug, Plant, planted
from tests.sinks.lake.conftest import in_folder

pytestmark = pytest.mark.services

LOOK_AT_WHAT_IS_DECIDED = ("kafka-wal", "delta", "iceberg")
"""Those whose look at a decision takes what they inspected a moment ago.

Handles of kafka-2pc tell what was finished before them: those of an earlier epoch stand for nothing.
"""

SYSTEMS = (
    "kafka-2pc",
    *LOOK_AT_WHAT_IS_DECIDED,
    "postgres-2pc",
    "postgres-wal",
    "s3-2pc",
    "s3-wal",
)
SAMPLED = ("kafka-2pc", "kafka-wal", "delta", "postgres-2pc")
OTHERS = rows(90, 2)
PARTS: Sequence[Sequence[Row]] = (rows(0, 3), rows(10, 2), (), rows(20, 4))
"""Of each epoch the rows of the sink that has none in one."""


@pytest.fixture
def opened(
    request: pytest.FixtureRequest, system: str, tmp_path: Path
) -> AbstractContextManager[Any]:
    """A harness of the system, under a register elsewhere."""
    name, _, protocol = system.partition("-")
    if name == "kafka":
        kafka = request.getfixturevalue("kafka")
        kafka.start()
        return open_variant(kafka.bootstrap, f"{protocol}-foreign-register")
    if name == "postgres":
        variant = TableVariant(protocol, "append", own_register=False)
        return open_table(request.getfixturevalue("shared_database"), variant)
    if name == "s3":
        store, prefix = map(request.getfixturevalue, ("store", "prefix"))
        given = {"endpoint": store.endpoint, "region": store.region, "protocol": protocol}
        return open_folder(f"s3://{store.bucket}/{prefix}", given)
    return in_folder(name, tmp_path)()


@dataclass(frozen=True)
class Job:
    """A job of two sinks, the first of which has the register."""

    harness: Any
    world: World

    def others_write(self) -> None:
        """To the topic, as anybody may."""
        if isinstance(self.harness, TopicHarness):
            for partition in range(PARTITIONS):
                self.harness.add(partition, 2)

    def written(self) -> Counter[Row]:
        """What is in the target of the second sink, but for others' records, which have no value."""
        return Counter(row for row in self.harness.read() if row[1])


@pytest.fixture
def job(opened: AbstractContextManager[Any]) -> Iterator[Job]:
    with opened as harness:

        def systems(wire: Wire) -> Mapping[str, System]:
            first = fake("first", wire)
            second = System("second", wire, harness.new_sink, first.register, harness)
            return {"first": first, "second": second}

        yield Job(harness, World(opened=systems))


def write(run: Run, epoch: int, **parts: Sequence[Row]) -> None:
    """An epoch of one task, which gives each sink rows of its own."""
    state, _ = run.coordinator.begin(epoch)
    shares = []
    for name, part in parts.items():
        writer = run.sinks[name].writer(run._named(name, state, epoch, 0))
        writer.write(batch_of(part))
        shares.append(Wrote(len(part), writer.pre_commit()))
    run.coordinator.commit(Report(epoch, shares, f"epoch {epoch}"))


def goes_on(job: Job) -> None:
    run = job.world.run()
    for epoch, parts in enumerate(PARTS):
        write(run, epoch, first=parts or OTHERS, second=parts)
        job.others_write()
    job.world.run().coordinator.begin(len(PARTS))
    assert job.world.state().frontier == len(PARTS) - 1
    assert job.written() == Counter(row for part in PARTS for row in part)


def of(system: str, *more: Any) -> Any:
    return pytest.param(system, *more, marks=() if system in SAMPLED else pytest.mark.campaign)


@pytest.mark.parametrize("system", [of(system) for system in SYSTEMS])
def test_an_epoch_without_rows_of_a_sink_is_decided_though_others_have_written(job: Job) -> None:
    goes_on(job)


def takes_what_it_inspected_last(plant: Plant) -> None:
    """A sink without rows of the epoch is shown those that it had last."""
    proper, last = Past.of, dict[Sequence[int], tuple[Committable, ...]]()

    def remembers(self: Past, sinks: Any) -> Past:
        past = proper(self, sinks)
        if past.own:
            last[past.sinks] = past.own
        return replace(past, own=last.get(past.sinks, past.own)) if past.running else past

    plant(Past, "of", remembers)


def takes_what_others_inspected(plant: Plant) -> None:
    """Each sink is shown what all of them decide."""
    proper: Callable[[Past, Any], Past] = Past.of
    plant(Past, "of", lambda past, sinks: replace(proper(past, sinks), own=past.own))


@pytest.mark.parametrize(
    ("system", "bug"),
    [
        of(system, bug)
        for bug in (takes_what_it_inspected_last, takes_what_others_inspected)
        for system in LOOK_AT_WHAT_IS_DECIDED
    ],
)
def test_a_look_at_what_was_seen_before_is_found(job: Job, bug: Bug) -> None:
    with planted(bug, by=TargetWentBackError):
        goes_on(job)
