"""Attempts are filtered once and for all: winners count, losers are dropped, the undecided wait."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abs_clients.kafka.attempts import (
    BEGINNING,
    Decided,
    Winners,
    attempt_of,
    header_of,
    side_topic,
)
from abs_core.errors import CorruptionError
from abs_core.model import HandleName

REGISTER = "0123456789abcdef"
WON = HandleName(REGISTER, "job", 2, 5, 0, "aa")
LOST = HandleName(REGISTER, "job", 2, 5, 0, "bb")
LATER = HandleName(REGISTER, "job", 2, 6, 0, "cc")
DECIDED = Decided(REGISTER, "job", 2, 5, (WON,))


def test_a_winners_record_survives_its_bytes() -> None:
    for decided in (
        DECIDED,
        replace(DECIDED, winners=()),
        replace(DECIDED, winners=(WON, LATER)),
        replace(DECIDED, after=BEGINNING),
    ):
        assert Decided.from_bytes(decided.to_bytes()) == decided


def test_the_wire_format_stays_as_it_is() -> None:
    """What is in topics out there must be read by every later release."""
    assert header_of(WON) == ("abs.attempt", b"abs1:0123456789abcdef:job:2:5:0:aa")
    assert DECIDED.to_bytes() == (
        b'{"epoch":5,"generation":2,"job":"job","register":"0123456789abcdef","version":1,'
        b'"winners":[[2,5,0,"aa"]]}'
    )
    assert replace(DECIDED, after=4).to_bytes() == DECIDED.to_bytes().replace(
        b'{"epoch"', b'{"after":4,"epoch"'
    )
    assert side_topic("data") == "data.abs-winners"


@pytest.mark.parametrize(
    "value", [None, b"", b"{}", b"[1]", DECIDED.to_bytes().replace(b'"version":1', b'"version":2')]
)
def test_what_is_no_winners_record_is_refused(value: bytes | None) -> None:
    with pytest.raises(CorruptionError):
        Decided.from_bytes(value)


def test_a_header_that_names_no_attempt_is_refused() -> None:
    assert attempt_of(None) is None
    for value in (b"", b"abs1:job", b"\xff", str(WON).encode() + b"x y"):
        with pytest.raises(CorruptionError, match=r"abs\.attempt"):
            attempt_of(value)


def test_winners_count_losers_do_not_and_the_rest_wait() -> None:
    winners = Winners().read([DECIDED.to_bytes()])
    assert winners.counts(WON) is True
    assert winners.counts(LOST) is False
    assert winners.counts(LATER) is None
    assert Winners().counts(WON) is None


@pytest.mark.parametrize(
    ("other", "counts"),
    [
        (replace(LOST, epoch=4), False),
        (replace(LOST, generation=1, epoch=6), False),  # a lower generation decides nothing more
        (replace(LOST, generation=3, epoch=0), None),  # adopted: epochs are counted anew
        (replace(LOST, generation=3, epoch=5), None),
        (replace(LOST, register="f" * 16), None),
        (replace(LOST, job="job2"), None),
        (replace(WON, partition=1), False),
    ],
)
def test_only_what_can_never_win_any_more_has_lost(other: HandleName, counts: bool | None) -> None:
    assert Winners().read([DECIDED.to_bytes()]).counts(other) is counts


def test_a_winner_whose_record_was_deleted_is_never_dropped() -> None:
    winners = Winners(complete=False).read([DECIDED.to_bytes()])
    with pytest.raises(CorruptionError, match="deleted") as refused:
        winners.counts(replace(WON, epoch=4))
    assert refused.value.handle == str(replace(WON, epoch=4))
    assert winners.counts(LOST) is False


def test_a_batch_is_filtered_up_to_the_first_undecided_record() -> None:
    winners = Winners().read([DECIDED.to_bytes()])
    names = [None, WON, LOST, WON, LATER, WON, LATER]
    headers = pa.array([None if n is None else str(n).encode() for n in names], pa.binary())
    for given_as in (headers, headers.cast(pa.string()), pa.chunked_array([headers])):
        filtered = winners.filter(given_as)
        assert filtered.stop == 4
        assert filtered.undecided == LATER
        assert filtered.keep.slice(0, filtered.stop).to_pylist() == [True, True, False, True]
    filtered = winners.filter(headers.slice(0, 4))
    assert (filtered.stop, filtered.undecided) == (4, None)
    assert winners.filter(headers.slice(0, 0)).stop == 0
    assert winners.filter(pa.nulls(3, pa.binary())).keep.to_pylist() == [True] * 3


@given(st.data())
def test_a_verdict_never_changes(data: st.DataObject) -> None:
    """Any history of runs and epochs: what once counted counts ever after."""
    generations = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    attempts_seen = [
        HandleName(REGISTER, "job", g, e, 0, f"{a:x}")
        for g in range(len(generations))
        for e in range(4)
        for a in range(3)
    ]
    winners = Winners()
    verdicts: dict[HandleName, bool] = {}
    for generation, epochs in enumerate(generations):
        for epoch in range(epochs):
            mine = [h for h in attempts_seen if (h.generation, h.epoch) == (generation, epoch)]
            winner = data.draw(st.sampled_from(mine))
            winners.read([Decided(REGISTER, "job", generation, epoch, (winner,)).to_bytes()])
            assert winners.counts(winner) is True
            for handle in attempts_seen:
                counts = winners.counts(handle)
                if handle in verdicts:
                    assert counts is verdicts[handle]
                elif counts is not None:
                    verdicts[handle] = counts


def test_a_side_topic_that_was_made_anew_drops_no_winner() -> None:
    later = replace(DECIDED, epoch=6, winners=(LATER,), after=5)
    winners = Winners().read([later.to_bytes()])
    assert winners.counts(LATER) is True
    with pytest.raises(CorruptionError, match="deleted or lost"):
        winners.counts(WON)
    assert Winners().read([DECIDED.to_bytes(), later.to_bytes()]).counts(LOST) is False
    begun = replace(DECIDED, after=BEGINNING)
    assert Winners().read([begun.to_bytes()]).counts(replace(LOST, epoch=4)) is False


def test_an_attempt_without_a_side_topic_is_an_error() -> None:
    with pytest.raises(CorruptionError, match="no side topic"):
        Winners(there=False).counts(WON)


Made = tuple[list[Decided], list[HandleName]]


@st.composite
def histories(draw: st.DrawFn) -> Made:
    """What a job's runs decide and write: attempts that fail, epochs left out, protocols in turn."""
    decided: list[Decided] = []
    written: list[HandleName] = []
    frontier = BEGINNING
    for generation in range(1, draw(st.integers(1, 4)) + 1):
        for _ in range(draw(st.integers(0, 3))):
            epoch = frontier + draw(st.integers(1, 2))
            mine = [
                HandleName(REGISTER, "job", generation, epoch, 0, f"{a:x}")
                for a in range(draw(st.integers(1, 2)))
            ]
            written += mine
            if draw(st.booleans()):
                decided.append(
                    Decided(REGISTER, "job", generation, epoch, (mine[0],), after=frontier)
                )
                frontier = epoch
            else:
                break  # this run dies
    return decided, written


@given(histories(), st.data())
def test_whatever_of_the_side_topic_is_lost_no_winner_is_dropped(
    made: Made, data: st.DataObject
) -> None:
    """Nor is an error made of losers where nothing is lost."""
    decided, written = made
    kept = data.draw(st.lists(st.sampled_from(decided), unique=True)) if decided else []
    won = {handle for each in decided for handle in each.winners}
    whole, rest = (
        Winners().read(d.to_bytes() for d in decided),
        Winners().read(d.to_bytes() for d in kept),
    )
    for handle in written:
        counts = whole.counts(handle)
        assert counts is (True if handle in won else counts)
        assert counts is not True or handle in won
        try:
            assert rest.counts(handle) in ((True, None) if handle in won else (False, None))
        except CorruptionError:
            assert len(kept) < len(decided)
