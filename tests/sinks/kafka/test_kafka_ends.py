"""What the marks of a topic's ends tell of lost records, for any number of partitions; no broker."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from abs_core.errors import CorruptionError
from abs_core.lookback import LookedBack, Noted, Past
from abs_core.model import MAX_FULL_MARK, MAX_MARK, Shown
from abs_sinks.kafka.lookback import MAX_ENDS, compare
from abs_sinks.kafka.mark import SUMS, Ends, Topics
from tests.kit.kafka_elections import Log

MOST = 10**15 - 1


def topic(*ends: int) -> dict[str, Ends]:
    return {"t": Ends("id", ends)}


def mark(*ends: int) -> Shown:
    [shown] = Topics(topic(*ends)).noted(1)
    return shown


def told(marks: list[str], *ends: int) -> tuple[tuple[int, ...], bool]:
    """Epochs that are gone, and whether nothing can be told of the newest."""
    noted = tuple(Noted(epoch, 0, mark) for epoch, mark in enumerate(marks))
    [look] = compare(Past("", "job", (1, 1), noted), topic(*ends), named=False) or [LookedBack(0)]
    return look.gone, look.unsure != ""


ENDS = st.lists(st.integers(0, MOST // 2), min_size=1, max_size=3).flatmap(
    lambda some: st.builds(
        lambda size: [some[n % len(some)] + n for n in range(size)], st.integers(1, MAX_ENDS)
    )
)


@given(ENDS, st.data())
@example([MOST // 2] * MAX_ENDS, None)
def test_an_end_below_the_newest_ones_is_always_told_and_growth_never_is(
    ends: list[int], data: Any
) -> None:
    shown = mark(*ends)
    assert len(shown.mark) <= MAX_MARK
    assert len(shown.full) <= MAX_FULL_MARK
    marks = [shown.mark, shown.full or shown.mark]
    assert told(marks, *ends) == ((), False)
    draw = data.draw if data is not None else lambda strategy: 0
    grown = [*(end + draw(st.integers(0, 1)) for end in ends[:9]), *ends[9:]]
    assert told(marks, *grown) == ((), False)
    if len(ends) < MAX_ENDS:
        assert told(marks, *grown, 0) == ((), False), "a partition was added"
    fell = draw(st.integers(0, len(ends) - 1))
    others = [end + SUMS for end in ends]
    lost = [*others[:fell], ends[fell] - 1, *others[fell + 1 :]]
    assert 1 in told(marks, *lost)[0], f"partition {fell} has lost a record"


def test_ends_fit_in_a_mark_or_stand_in_a_full_one_beside_their_sums() -> None:
    shown = mark(*[MOST] * MAX_ENDS)
    assert Topics.read(shown.full).topics["t"].ends == (MOST,) * MAX_ENDS
    summed = Topics.read(shown.mark).topics["t"]
    assert (summed.ends, summed.partitions, sum(summed.sums)) == ((), MAX_ENDS, MAX_ENDS * MOST)
    few = mark(*[MOST] * SUMS)
    assert few.full == ""
    assert Topics.read(few.mark).topics["t"].ends == (MOST,) * SUMS


def test_sums_tell_of_older_epochs_what_they_can() -> None:
    older, newest = mark(*[1_000_000] * 500).mark, mark(*[2_000_000] * 500).full
    assert told([older, newest], *[500_000] * 500)[0] == (0, 1)
    assert told([older, newest], *[1_500_000] * 500)[0] == (1,)
    # Without a full mark, as an older release leaves it, growth proves nothing.
    assert told([older], *[1_500_000] * 500) == ((), True)


def test_above_the_limit_a_start_says_that_it_cannot_tell() -> None:
    shown = mark()
    assert (shown.full, Topics.read(shown.mark).topics) == ("", topic())
    assert told([shown.mark]) == ((), True)
    assert told([mark(7, 8).mark]) == ((), True), "partitions were added since"


@pytest.mark.parametrize("mark", ['{"topics":{},"sums":7}', '{"topics":{"t":[]},"sums":{}}'])
def test_damaged_ends_are_told(mark: str) -> None:
    with pytest.raises(CorruptionError, match="cannot be read"):
        Topics.read(mark)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=12), st.data())
def test_records_that_an_election_has_cut_off_are_told_whatever_was_written_since(
    steps: list[tuple[int, int]], data: Any
) -> None:
    """Each step writes some records, then may elect a leader that lacks some of the last ones."""
    log, noted = Log(), list[tuple[str, int, int, int]]()
    for written, missing in steps:
        log.write(written)
        ends = Ends("id", (log.end, 7), leaders=(log.leader, 0))
        [shown] = Topics({"t": ends}).noted(1)
        noted.append((shown.mark, log.end, log.leader, len(log.cuts)))
        if missing:
            log.elect(missing - 1)
    now = {"t": Ends("id", (log.end, 7), leaders=(log.leader, 0))}
    for mark, end, leader, at in noted:
        lost = any(cut < end for cut in log.cuts[at:])
        cuts = {("t", 0, leader): log.end_of(leader)} if leader != log.leader else {}
        past = Past("", "job", (1, 0), (Noted(0, 0, mark),))
        looks = compare(past, now, cuts, named=False)
        assert bool(looks) == lost, f"an end of {end} under leader {leader}"
        # A mark without leaders, as an older release made it, tells less, and nothing untrue.
        older = Topics({"t": Ends("id", (end, 7))}).to_text()
        plain = compare(Past("", "job", (1, 0), (Noted(0, 0, older),)), now, cuts, named=False)
        assert lost or not plain


def test_a_leader_below_the_noted_one_is_of_brokers_that_were_restored() -> None:
    mark = Topics({"t": Ends("id", (5,), leaders=(3,))}).to_text()
    past = Past("", "job", (1, 0), (Noted(0, 0, mark),))
    for leader, gone in ((2, True), (3, False), (4, False)):
        now = {"t": Ends("id", (9,), leaders=(leader,))}
        assert bool(compare(past, now, named=False)) == gone


def test_leaders_take_the_place_that_is_left() -> None:
    same = Topics({"t": Ends("id", (1, 2, 3), leaders=(4, 4, 4))}).to_text()
    assert '"leaders":{"t":[4]}' in same
    assert Topics.read(same).topics["t"].leaders == (4, 4, 4)
    [shown] = Topics({"t": Ends("id", (MOST,) * MAX_ENDS, leaders=tuple(range(MAX_ENDS)))}).noted(1)
    assert Topics.read(shown.full).topics["t"].ends == (MOST,) * MAX_ENDS
    with pytest.raises(CorruptionError, match="cannot be read"):
        Topics.read('{"topics":{"t":["id",1,2]},"leaders":{"t":[1,2,3]}}')


BEGUN = Topics(topic(9, 5, 7), begins={("t", 0): 4, ("t", 2): 6})
BEFORE = Topics(topic(4, 5, 6), before=True, more=5)


@pytest.mark.parametrize(
    ("mark", "now", "partly"),
    [
        (BEGUN, topic(4, 5, 6), False),
        (BEGUN, topic(2, 9, 0), False),  # partition 1 has none of its records
        (BEGUN, topic(5, 5, 6), True),
        (BEGUN, topic(0, 0, 7), True),
        (BEGUN, topic(), True),  # too many partitions now: nothing tells
        (BEGUN, {"t": Ends("another", (9, 9, 9))}, False),
        (BEGUN, {}, False),
        (BEFORE, topic(4, 5, 6), False),
        (BEFORE, topic(4, 6, 6), True),
        (BEFORE, topic(4, 5, 6, 1), True),
        (Topics(topic(9, 5, 7)), topic(0, 0, 0), True),  # of an older release
        (Topics({**topic(9), "u": Ends("other", (3,))}), topic(9), True),
    ],
)
def test_of_which_epochs_records_may_be_left(
    mark: Topics, now: dict[str, Ends], partly: bool
) -> None:
    assert Topics.read(mark.to_text()) == mark
    assert mark.may_have_part(now) is partly


def test_begins_are_noted_where_there_is_room() -> None:
    few, many = ({("t", n): MOST for n in range(size)} for size in (3, MAX_ENDS))
    [fits] = Topics(topic(*[MOST] * 3), begins=few).noted(1)
    assert Topics.read(fits.mark).begins == few
    [shown] = Topics(topic(*[MOST] * SUMS), begins=many).noted(1)
    assert Topics.read(shown.mark) == Topics(topic(*[MOST] * SUMS))
