"""What became of a transaction is told by proof only; see ``abs_sinks.kafka.open_transaction``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from abs_clients.kafka.producer_ids import ProducerState
from abs_clients.kafka.settings import Settings
from abs_clients.kafka.transactions import Description, EndTxn, Reply, State
from abs_core.errors import CorruptionError, ProtocolError
from abs_core.model import NO_EPOCH, Committable, Decision, HandleName, JobState, Outcome
from abs_core.patience import Patience
from abs_core.protocol import sweepable
from abs_sinks.kafka import KafkaOptions, twophase
from abs_sinks.kafka.open_transaction import (
    OpenTransaction,
    id_name,
    is_id,
    outcome,
    parse_id,
    pattern_of,
)
from abs_sinks.kafka.places import FRONTIER, TOPICS, Places, begins_of, offsets_of
from abs_sinks.kafka.twophase import TwoPhaseCommitter

NAME = id_name("0123456789abcdef", "job", 3, 1, "ab12")
MINE = OpenTransaction(NAME, 7, 5, 4, 60_000, 1000, "")
NEWER = OpenTransaction(NAME, 7, 5, 5, 60_000, 1000, "")


def seen(state: State, epoch: int = 5, *, producer: int = 7, start: int = 1000) -> Description:
    return Description(state, producer, epoch, 60_000, start)


@pytest.mark.parametrize(
    ("prepared", "now", "expected"),
    [
        (MINE, seen(State.ONGOING), Outcome.PREPARED),
        (MINE, seen(State.PREPARE_COMMIT), Outcome.COMMITTED),
        (MINE, seen(State.COMPLETE_COMMIT), Outcome.COMMITTED),
        (MINE, seen(State.PREPARE_ABORT), Outcome.ABORTED),
        (MINE, seen(State.COMPLETE_ABORT), Outcome.ABORTED),
        (MINE, seen(State.COMPLETE_ABORT, 6), Outcome.ABORTED),  # a timeout raises the epoch
        (MINE, seen(State.PREPARE_EPOCH_FENCE, 6), Outcome.ABORTED),
        (MINE, None, Outcome.UNKNOWN),  # absence is no proof
        (MINE, seen(State.COMPLETE_COMMIT, 6), Outcome.UNKNOWN),  # another transaction's commit
        (MINE, seen(State.COMPLETE_COMMIT, 4), Outcome.UNKNOWN),
        (MINE, seen(State.COMPLETE_COMMIT, producer=8), Outcome.UNKNOWN),
        (MINE, seen(State.COMPLETE_ABORT, 7), Outcome.UNKNOWN),
        (MINE, seen(State.ONGOING, start=1001), Outcome.UNKNOWN),
        (MINE, seen(State.ONGOING, 6), Outcome.UNKNOWN),
        (MINE, seen(State.EMPTY), Outcome.UNKNOWN),
        (MINE, seen(State.EMPTY, 6), Outcome.UNKNOWN),
        (MINE, seen(State.DEAD), Outcome.UNKNOWN),
        (NEWER, seen(State.ONGOING), Outcome.PREPARED),
        (NEWER, seen(State.COMPLETE_COMMIT, 6), Outcome.COMMITTED),
        (NEWER, seen(State.COMPLETE_COMMIT), Outcome.UNKNOWN),
        (NEWER, seen(State.COMPLETE_ABORT, 6), Outcome.ABORTED),
    ],
)
def test_an_outcome_is_told_by_producer_epoch_and_state(
    prepared: OpenTransaction, now: Description | None, expected: Outcome
) -> None:
    assert outcome(prepared, now) is expected


class Coordinator:
    """Answers to EndTxn and DescribeTransactions; the markers are written after some looks."""

    def __init__(self, reply: Reply, looks: int) -> None:
        self.reply, self.looks = reply, looks

    def end(self, settings: Settings, endings: Sequence[EndTxn], **_: Any) -> dict[str, Reply]:
        return {each.transactional_id: self.reply for each in endings}

    def describe(self, settings: Settings, ids: Sequence[str]) -> dict[str, Description | None]:
        if ids:
            self.looks -= 1
        state = State.PREPARE_COMMIT if self.looks > 0 else State.COMPLETE_COMMIT
        return {each: seen(state) for each in ids}


@pytest.mark.parametrize(("reply", "awaited"), [(Reply.DONE, False), (Reply.BUSY, True)])
def test_what_is_committed_is_visible_when_it_is_forgotten_and_an_unproven_commit_at_once(
    monkeypatch: pytest.MonkeyPatch, reply: Reply, awaited: bool
) -> None:
    coordinator = Coordinator(reply, looks=3)
    monkeypatch.setattr(twophase, "end", coordinator.end)
    monkeypatch.setattr(twophase, "describe", coordinator.describe)
    committer = TwoPhaseCommitter(KafkaOptions.parse({"kafka.bootstrap.servers": "nowhere:1"}))
    handle = HandleName("0123456789abcdef", "job", 3, 9, 0, "aa")
    found = committer.commit([Committable(handle, 1, "x:0", MINE.extra)])
    assert found == {handle: Outcome.COMMITTED}
    assert coordinator.looks == (0 if awaited else 3)
    committer.forget(JobState("0123456789abcdef", "job", "t", "l", 3, "r"))
    assert coordinator.looks == 0
    committer.forget(JobState("0123456789abcdef", "job", "t", "l", 3, "r"))
    assert coordinator.looks == 0, "it is awaited once"


@pytest.mark.parametrize(
    ("ahead_s", "late", "told"),
    [
        (0, False, ""),
        (3600, False, "ahead of the brokers' clocks"),
        (0, True, ""),
        (3600, True, ""),
        (-1, False, "behind the brokers' clocks"),
        (-3600, False, "behind the brokers' clocks"),
        (-3600, True, ""),
    ],
)
def test_a_clock_that_differs_from_the_brokers_is_named_and_gives_a_handle_no_time(
    ahead_s: int, late: bool, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("abs_sinks.kafka.twophase.time.time", lambda: 1.0 + ahead_s)
    patience = Patience(10.0)
    prepared = replace(MINE, timeout_ms=600_000)
    names = frozenset([str(NAME)] if late else [])
    found = twophase._inspection(prepared, seen(State.ONGOING), names, patience)
    assert found.seconds_left is not None
    assert (found.seconds_left < patience.to_decide) is (late or ahead_s > 0)
    assert found.seconds_left <= (600 if ahead_s == 0 else patience.to_decide)
    assert ("clock" in found.timeout) is bool(told)
    assert told in found.timeout


def test_what_is_written_down_is_read_back() -> None:
    handle = HandleName("0123456789abcdef", "job", 3, 9, 0, "aa")
    committable = Committable(handle, 1, "x:0", MINE.extra)
    assert OpenTransaction.of(committable) == MINE
    assert committable.held_as == NAME
    assert OpenTransaction.of(Committable(handle, 1, "x:0")) is None
    broken = tuple(pair for pair in MINE.extra if pair[0] != "epoch")
    with pytest.raises(ProtocolError):
        OpenTransaction.of(Committable(handle, 1, "x:0", broken))


def test_an_id_is_matched_whole_and_never_by_its_beginning() -> None:
    assert parse_id(str(NAME)) == NAME
    assert parse_id(str(NAME)[:-1]) != NAME
    assert parse_id(f"{NAME}x") is None
    assert parse_id("orders") is None
    handle = HandleName("0123456789abcdef", "job", 3, 9, 0, "aa")
    assert parse_id(str(handle)) is None
    assert not is_id(handle)
    assert "a\\.b" in pattern_of("a.b")


def test_an_id_is_swept_under_a_higher_generation_unless_a_decision_names_it() -> None:
    handle = HandleName("0123456789abcdef", "job", 3, 9, 0, "aa")
    named = Decision("l", 9, 3, (Committable(handle, 1, "x:0", MINE.extra),))
    own = JobState("0123456789abcdef", "job", "t", "l", 3, "r", frontier=NO_EPOCH - 1)
    later = JobState("0123456789abcdef", "job", "t", "l", 4, "r2", frontier=20)
    still_open = JobState("0123456789abcdef", "job", "t", "l", 4, "r2", open=(named,))
    assert not sweepable(own, 3, NAME)
    assert sweepable(later, 4, NAME)
    assert not sweepable(still_open, 4, NAME)


def test_offsets_are_bounded() -> None:
    places = [("t", n) for n in range(40)]
    found = {("t", 0): ProducerState(5, 4, 17)}
    text = offsets_of(places, {**dict.fromkeys(places), **found})
    assert text.startswith("t-0 from 17 (5), t-1, ")
    assert text.endswith("and 8 more partitions")
    assert offsets_of([("t", 0)], None) == "t-0"


def told(**extra: str) -> Places:
    handle = HandleName("0123456789abcdef", "job", 3, 9, 0, "aa")
    return Places.of(Committable(handle, 1, "x:0", tuple(sorted(extra.items()))))


def test_a_handle_tells_the_places_of_its_records() -> None:
    places = [("a-1", n) for n in range(33)]
    found = {("a-1", 0): ProducerState(5, 4, 17), ("a-1", 31): ProducerState(5, 0, 0)}
    offsets = offsets_of(places, {**dict.fromkeys(places), **found})
    handle = told(offsets=offsets, **{TOPICS: '{"a-1":"x","b":"y"}', FRONTIER: "8"})
    assert handle.topics == {"a-1", "b"}
    assert handle.ids == {"a-1": "x", "b": "y"}
    assert handle.begins == {("a-1", 0): 17, ("a-1", 31): 0}
    assert handle.ends == {("a-1", 0): 22, ("a-1", 31): 1}
    assert handle.frontier == 8
    assert told() == Places(frozenset(), {}, {}, {}, -1), "an older release's tells nothing"


def test_only_what_was_written_after_an_epoch_was_finished_is_behind_it() -> None:
    early = told(offsets="t-0 from 5 (1), t-1 from 9 (1)", **{FRONTIER: "3"})
    late = told(offsets="t-0 from 7 (1)", **{FRONTIER: "4"})
    older = told(offsets="t-0 from 1 (1)")
    assert begins_of([early, late, older], after=4) == {("t", 0): 7}
    assert begins_of([early, late, older], after=3) == {("t", 0): 5, ("t", 1): 9}


@pytest.mark.parametrize("wrong", [{TOPICS: "[]"}, {TOPICS: '{"t":7}'}, {FRONTIER: "x"}])
def test_places_that_cannot_be_read_are_told(wrong: dict[str, str]) -> None:
    with pytest.raises(CorruptionError, match="abs1:0123456789abcdef:job:3:9:0:aa cannot be read"):
        told(**wrong)
