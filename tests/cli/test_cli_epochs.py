"""`abs epochs` tells where each epoch ends in every target, and `abs wait` when it is there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from abs_cli.output import exit_code
from abs_core.errors import AbsError
from abs_core.model import Committable, Drained, Shown
from abs_sinks.kafka import lookback
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.s3.layout import UpTo
from tests.cli.several import JOB, Several
from tests.kit.command import abs_
from tests.kit.kafka import PARTITIONS
from tests.kit.kafka_reading import all_records, new_reader
from tests.planted import planted

pytestmark = pytest.mark.services

EPOCHS = (("a", "b", "c"), ("d",), ("e", "f", "g", "h"))


def told(job: Several, *, code: int = 0) -> list[dict[str, Any]]:
    made = abs_("epochs", JOB, "--sinks", str(job.file()), "--json")
    assert made.exit_code == code, (made.output, made.exception)
    document = json.loads(made.stdout)
    assert bool(document["decided_and_open"]) == bool(code)
    found: list[dict[str, Any]] = document["epochs"]
    return found


def waits(job: Several, *words: str) -> int:
    return code_of("wait", JOB, "--sinks", str(job.file()), "--timeout", "0", *words)


def code_of(*words: str) -> int:
    """As the process ends, see ``abs_cli.main.main``."""
    made = abs_(*words)
    return exit_code(made.exception) if isinstance(made.exception, AbsError) else made.exit_code


def wrong_places(job: Several) -> list[str]:
    """Where a reader that stops as the command says sees other rows than were written by then."""
    with closing(new_reader(job.topic.bootstrap)) as reader:
        records = all_records(reader, job.topic.topic, PARTITIONS)
    names, wrong = job.bucket.names(), []
    for each in told(job):
        number = each["epoch"]
        payments, alerts, items = (at["as_of"] for at in each["targets"])
        assert payments == {"now": True}
        wanted = Counter(value for values in EPOCHS[: number + 1] for value in values)
        ends = alerts["topics"][job.topic.topic]["ends"]
        below = (r.value.decode() for r in records if r.offset < ends[str(r.partition)])
        if (seen := Counter(below)) != wanted:
            wrong.append(f"the topic at epoch {number}: {seen}")
        upto = UpTo(items["register"], (items["generation"], items["epoch"]))
        if sum(map(upto.has, names)) != number + 1:
            wrong.append(f"the bucket at epoch {number}")
        if [at["rows"] for at in each["targets"]] != [len(EPOCHS[number])] * 3:
            wrong.append(f"rows of epoch {number}")
    return wrong


def test_each_epoch_is_told_as_it_was_and_waited_for_through_a_driver_that_died(
    job: Several,
) -> None:
    assert waits(job, "--latest") == 5
    run = job.run()
    for epoch in (0, 1):
        job.epoch(run, epoch, *EPOCHS[epoch])
    assert [waits(job, "--epoch", n) for n in "012"] == [0, 0, 4]
    job.decided(run, 2, *EPOCHS[2])
    told(job, code=1)
    assert [waits(job, "--epoch", "2"), waits(job, "--latest")] == [4, 4]
    again = job.run()
    again.begin(2)
    again.commit(2, [Drained(len(EPOCHS[2]) * 3)], "input 2")
    assert [waits(job, "--epoch", "2"), waits(job, "--latest")] == [0, 0]
    assert wrong_places(job) == []
    shown = abs_("epochs", JOB, "--sinks", str(job.file())).stdout
    assert [line.split()[0] for line in shown.splitlines()] == ["epoch", "0", "1", "2"]
    # The address of the register tells the same; where it is not, the job is gone.
    assert abs_("epochs", JOB, "--url", job.url).stdout == shown
    assert code_of("wait", "another", "--url", job.url, "--latest", "--timeout", "0") == 5
    assert code_of("epochs", "another", "--url", job.url) == 2
    for words in ((), ("--latest", "--epoch", "1"), ("--after", "today")):
        assert waits(job, *words) == 2


def ends_from_before(
    real: Callable[..., list[Shown]],
) -> Callable[[KafkaOptions, Sequence[Committable]], list[Shown]]:
    before = ""

    def shown(options: KafkaOptions, committables: Sequence[Committable]) -> list[Shown]:
        nonlocal before
        (now,) = real(options, committables)
        mark, before = before or now.mark, now.mark
        return [replace(now, mark=mark)]

    return shown


def test_the_check_finds_ends_from_before_the_epoch(job: Several) -> None:
    from_before = (lookback, "shown", ends_from_before(lookback.shown))
    with planted(from_before, match="the topic at epoch 1: "):
        run = job.run()
        for epoch in (0, 1):
            job.epoch(run, epoch, *EPOCHS[epoch])
        assert wrong_places(job) == []
