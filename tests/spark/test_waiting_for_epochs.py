"""A wait ends when an epoch is finished in all targets, and tells "not yet" from "gone"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from abs_core.contracts import Stored
from abs_core.errors import JobGoneError, NotYetError, OptionError, UnavailableError
from abs_core.model import MOVED, NOWHERE, Course, Decision, JobState, Recent
from abs_spark.epochs import waiting
from abs_spark.epochs.cut import wanted_of
from abs_spark.epochs.waiting import FIRST_PAUSE, LAST_PAUSE, Wanted, arrived, wait_for
from tests.planted import planted

NEW = JobState("0" * 16, "job", "target", "lineage", 1, "run")


def at(frontier: int | None, decided: int | None = None) -> JobState:
    """Epochs up to the frontier are finished; epoch N's input was read at N thousand."""
    last = decided if decided is not None else -1 if frontier is None else frontier
    recent = tuple(Recent(n, None, 1, course=Course(n * 1000)) for n in range(last + 1))
    done = -1 if frontier is None else frontier
    still_open = tuple(Decision("lineage", n, 1, ()) for n in range(done + 1, last + 1))
    return replace(NEW, frontier=frontier, open=still_open, recent=recent)


Look = JobState | UnavailableError | None


@dataclass
class Register:
    """Answers look by look; the last answer stays. Time passes only in pauses."""

    looks: list[Look]
    now: float = 0.0
    pauses: list[float] = field(default_factory=list)
    count: int = 0

    def load(self) -> Stored | None:
        look = self.looks[min(self.count, len(self.looks) - 1)]
        self.count += 1
        if isinstance(look, UnavailableError):
            raise look
        return None if look is None else Stored(look, str(self.count))

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def wait(self, wanted: Wanted, timeout: float = 60.0) -> int:
        clock = {"pause": self.pause, "clock": lambda: self.now}
        return wait_for(self.load, "job", wanted, timeout, **clock)  # type: ignore[arg-type]


AWAY = UnavailableError("The register does not answer.")


def test_it_returns_at_the_finish() -> None:
    register = Register([at(0), AWAY, at(0, 1), at(0, 1), at(1)])
    assert register.wait(Wanted(1)) == 1
    assert register.count == 5
    assert Register([at(3)]).wait(Wanted(1)) == 1, "long ago"


def test_the_latest_is_the_one_that_is_decided_at_the_first_look() -> None:
    register = Register([AWAY, at(0, 1), at(0, 1), at(1, 2), at(2)])
    assert register.wait(Wanted()) == 1
    assert Register([at(4)]).wait(Wanted()) == 4
    assert Register([NEW, NEW, at(None, 0), at(0)]).wait(Wanted()) == 0, "the first one"


def test_after_a_time_it_is_the_first_epoch_whose_input_was_read_since() -> None:
    assert Register([at(1), at(1, 2), at(4)]).wait(Wanted(after=1001)) == 2
    assert Register([at(2)]).wait(Wanted(after=2000)) == 2
    untold = tuple(replace(each, course=Course()) for each in at(2).recent)
    with pytest.raises(NotYetError, match="read their input is not known"):
        Register([replace(at(2), recent=untold)]).wait(Wanted(after=0), 1)


def test_pauses_grow_from_a_floor_to_a_bound_and_never_pass_the_end() -> None:
    register = Register([at(0)])
    with pytest.raises(NotYetError):
        register.wait(Wanted(1))
    *pauses, last = register.pauses
    assert pauses[0] == FIRST_PAUSE
    assert all(a <= b <= LAST_PAUSE for a, b in pairwise(pauses))
    assert last <= LAST_PAUSE
    assert sum(register.pauses) == pytest.approx(60.0)
    assert register.count < 25
    once = Register([at(0)])
    with pytest.raises(NotYetError):
        once.wait(Wanted(1), 0)
    assert once.pauses == []


def test_what_is_not_yet_there_is_told() -> None:
    ended = replace(at(1, 2), run="run+ended")
    with pytest.raises(NotYetError) as told:
        Register([ended]).wait(Wanted(5), 3)
    assert told.value.what == (
        "Epoch 5 is not finished in all targets after 3 s: epoch 1 is the last that is; decided, and "
        "not finished: 2; its last run has ended."
    )
    with pytest.raises(UnavailableError):
        Register([at(1), AWAY]).wait(Wanted(5), 3)


@pytest.mark.parametrize(
    ("later", "why"),
    [
        (None, "has no register"),
        (replace(at(0), lineage=f"{MOVED}elsewhere: lineage"), "was moved"),
        (replace(at(0), lineage=f"{MOVED}{NOWHERE}: lineage"), "is being reset or removed"),
        (replace(at(9), register="1" * 16), "begun again"),
        (replace(at(9), lineage="another"), "counts its epochs anew"),
    ],
)
def test_a_job_that_is_gone_is_told_at_once(later: JobState | None, why: str) -> None:
    register = Register([at(0), at(0), later])
    with pytest.raises(JobGoneError, match=why):
        register.wait(Wanted(3), 1e9)
    assert register.count == 3
    if later is None or later.moved_to:
        with pytest.raises(JobGoneError):
            Register([later]).wait(Wanted(3), 1e9)


def test_of_an_epoch_and_a_time_one_is_given() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    assert wanted_of(None, moment) == Wanted(after=1_767_225_600_000)
    for epoch, after in ((1, moment), (None, moment.replace(tzinfo=None))):
        with pytest.raises(OptionError):
            wanted_of(epoch, after)


def test_a_time_is_told_apart_from_the_millisecond_before_it_in_every_zone() -> None:
    moment = datetime(2026, 3, 29, 1, 30, 0, 1, tzinfo=UTC)
    east, west = (timezone(timedelta(hours=hours)) for hours in (14, -12))
    begin = int(moment.timestamp()) * 1000
    for zone in (UTC, east, west, ZoneInfo("Europe/Berlin")):
        assert wanted_of(None, moment.astimezone(zone)) == Wanted(after=begin + 1)
    for number in range(1000):
        exact = moment.replace(microsecond=number * 1000)
        assert wanted_of(None, exact) == Wanted(after=begin + number), "no float between"
    first, last = datetime.min.replace(tzinfo=east), datetime.max.replace(tzinfo=west)
    assert arrived(at(2), wanted_of(None, first)) == 0
    assert arrived(at(2), wanted_of(None, last)) is None


def test_an_epoch_below_the_first_is_refused_and_a_time_that_is_no_number_ends() -> None:
    with pytest.raises(OptionError, match="no epoch -1"):
        wanted_of(-1, None)
    register = Register([at(0)])
    with pytest.raises(NotYetError):
        register.wait(Wanted(1), float("nan"))
    assert register.pauses == []


def at_the_decision(state: JobState, wanted: Wanted) -> int | None:
    return arrived(replace(state, frontier=state.last_decided), wanted)


def any_epoch(state: JobState, wanted: Wanted) -> int | None:
    return state.frontier


@pytest.mark.parametrize("bug", [at_the_decision, any_epoch])
def test_the_checks_find_a_wait_that_ends_too_early(
    bug: Callable[[JobState, Wanted], int | None],
) -> None:
    with planted((waiting, "arrived", bug)):
        test_it_returns_at_the_finish()


def test_the_checks_find_a_wait_that_looks_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "FIRST_PAUSE", 0.001)
    with pytest.raises(AssertionError):
        test_pauses_grow_from_a_floor_to_a_bound_and_never_pass_the_end()
