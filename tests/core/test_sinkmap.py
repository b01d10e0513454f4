"""The map of an epoch's sinks: numbers stay, names tell sinks apart, nothing decided loses its sink."""

from __future__ import annotations

from dataclasses import replace

import pytest

from abs_core import codec, protocol, sinkmap
from abs_core.errors import CorruptionError, IdentityError, OptionError
from abs_core.model import Committable, Decision, HandleName, JobState, NamedSink
from abs_core.protocol import Changed, Refused, RunIdentity

REGISTER = "0123456789abcdef"
A, B, C = ("a", "pg/a"), ("b", "kafka/b"), ("c", "s3/c")


def who(run: str, *sinks: tuple[str, str], target: str | None = None) -> RunIdentity:
    targets = " + ".join(sorted(where for _, where in sinks))
    return RunIdentity("job", "lineage", run, target or targets, sinks=sinks)


def started(state: JobState | None, identity: RunIdentity) -> JobState:
    verdict = protocol.start(state, identity, REGISTER)
    assert isinstance(verdict, Changed), verdict
    return verdict.state


def refused(state: JobState, identity: RunIdentity) -> IdentityError:
    verdict = protocol.start(state, identity, REGISTER)
    assert isinstance(verdict, Refused)
    assert isinstance(verdict.error, IdentityError)
    return verdict.error


def decided(state: JobState, epoch: int, *sinks: int) -> JobState:
    handles = [
        HandleName(REGISTER, "job", state.generation, epoch, n * sinkmap.STRIDE + 7, "aa")
        for n in sinks
    ]
    committables = tuple(Committable(handle, 1, "x:1") for handle in handles)
    return replace(state, open=(Decision("lineage", epoch, state.generation, committables),))


def test_sinks_of_a_new_job_are_numbered_in_the_order_given() -> None:
    state = started(None, who("r1", B, A))
    assert sinkmap.numbers(state) == {"b": 0, "a": 1}


def test_a_handle_tells_its_sink() -> None:
    handle = HandleName(REGISTER, "job", 1, 0, 3 * sinkmap.STRIDE + 99, "aa")
    assert sinkmap.number_of(handle) == 3


def test_a_sink_that_is_added_begins_with_the_next_epoch_under_a_new_number() -> None:
    state = replace(started(None, who("r1", A)), frontier=4)
    state = started(state, who("r2", C, A))
    assert state.sinks == (NamedSink(0, *A, since=0), NamedSink(1, *C, since=5))
    assert state.target == "pg/a + s3/c"


def test_a_number_is_never_used_again_also_for_a_sink_that_comes_back() -> None:
    state = replace(started(None, who("r1", A, B)), frontier=2)
    state = started(state, who("r2", A))
    assert state.sinks[1] == NamedSink(1, *B, since=0, until=2)
    state = replace(state, frontier=6)
    state = started(state, who("r3", A, B))
    assert sinkmap.numbers(state) == {"a": 0, "b": 2}
    assert state.sinks[2].since == 7


def test_a_sink_with_a_decision_still_to_commit_cannot_be_taken_out() -> None:
    state = decided(started(None, who("r1", A, B)), 0, 0, 1)
    error = refused(state, who("r2", A))
    assert "'b'" in str(error)
    assert "once more" in error.remedy
    assert sinkmap.numbers(started(state, who("r2", A, B))) == {"a": 0, "b": 1}


def test_a_sink_without_a_handle_in_the_open_decision_can_be_taken_out() -> None:
    state = decided(started(None, who("r1", A, B)), 0, 0)
    assert sinkmap.numbers(started(state, who("r2", A))) == {"a": 0}


def test_another_target_under_the_same_name_is_refused() -> None:
    state = started(None, who("r1", A, B))
    error = refused(state, who("r2", A, ("b", "kafka/other")))
    assert "kafka/b" in str(error)
    assert "kafka/other" in str(error)


def test_a_job_of_one_sink_without_a_name_can_be_given_more() -> None:
    alone = started(None, RunIdentity("job", "lineage", "r1", "pg/a"))
    assert alone.sinks == ()
    state = started(replace(alone, frontier=1), who("r2", B, A))
    assert sinkmap.numbers(state) == {"a": 0, "b": 1}


def test_a_job_of_one_sink_keeps_it_when_it_is_given_others() -> None:
    alone = started(None, RunIdentity("job", "lineage", "r1", "pg/a"))
    assert "pg/a" in str(refused(alone, who("r2", B, C)))


def test_another_lineage_is_refused_whatever_its_sinks() -> None:
    state = started(None, who("r1", A, B))
    assert "lineage" in str(refused(state, replace(who("r2", A, B), lineage="other")))


def test_the_same_run_starts_once() -> None:
    state = started(None, who("r1", A, B))
    assert protocol.start(state, who("r1", A, B), REGISTER) == protocol.Unchanged(state)


@pytest.mark.parametrize("others", [(A,), (B,), (A, B, C)])
def test_a_run_that_goes_on_with_other_sinks_is_refused(
    others: tuple[tuple[str, str], ...],
) -> None:
    """Two functions of one job would each take the other's epochs for written."""
    state = started(None, who("r1", A, B))
    assert "began with the sinks a, b" in str(refused(state, who("r1", *others)))


def test_a_job_may_have_so_many_sinks_in_its_life_and_no_more() -> None:
    state = started(None, who("r", *((f"s{n}", f"t{n}") for n in range(sinkmap.MAX_SINKS))))
    assert "64" in str(refused(state, who("q", ("more", "t"))))


def test_the_map_is_kept_in_the_register_and_read_strictly() -> None:
    state = started(replace(started(None, who("r1", A, B)), frontier=2), who("r2", A))
    assert codec.state_from_text(codec.state_to_text(state), "here") == state
    text = codec.state_to_text(state)
    for damaged in (text.replace('[[0,"a"', '[[1,"a"'), text.replace('"pg/a",0,null', '"pg/a",0')):
        assert damaged != text
        with pytest.raises(CorruptionError):
            codec.state_from_text(damaged, "here")


@pytest.mark.parametrize("names", [[], ["a", ""], ["a", "b", "a"]])
def test_names_that_do_not_tell_sinks_apart_are_refused(names: list[str]) -> None:
    with pytest.raises(OptionError):
        sinkmap.check_names(names)


def test_one_sink_needs_no_name() -> None:
    sinkmap.check_names([""])
