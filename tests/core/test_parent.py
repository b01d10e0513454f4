"""The parent record of a batch job: what it notes, how much it keeps, and what a person takes out."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from abs_core.births import parent
from abs_core.births.parent import MAX_TOKENS
from abs_core.model import JobState, NotedToken, job_key
from abs_core.protocol import Changed, Unchanged, Verdict

MORNING, EVENING = "2026-11-20T08:00:00+00:00", "2026-11-20T20:00:00+00:00"


def note(state: JobState | None, token: str, generation: int = 1, at: str = MORNING) -> Verdict:
    entry = NotedToken(token, f"register of {token}", generation, at)
    return parent.note(state, job_key("job", token), entry, "target", "minted")


def noting(*tokens: str, at: str = MORNING) -> JobState:
    state: JobState | None = None
    for token in tokens:
        state = note(state, token, at=at).state  # type: ignore[union-attr]
    assert state is not None
    return state


def test_the_first_token_makes_the_record() -> None:
    state = noting("monday")
    assert (state.job, state.register, state.target) == ("job@", "minted", "target")
    assert parent.noted(state, "monday") == NotedToken("monday", "register of monday", 1, MORNING)
    assert parent.noted(state, "tuesday") is None
    assert parent.noted(None, "monday") is None


def test_its_key_is_no_jobs_and_no_tokens() -> None:
    assert parent.parent_key(job_key("a@b", "1")) == parent.parent_key(job_key("a@b")) == "a%40b@"
    assert parent.is_parent("job@")
    assert not parent.is_parent(job_key("job"))
    assert parent.token_of(job_key("job", "2026/11")) == "2026%2F11"
    assert parent.token_of(job_key("job")) is parent.token_of("job@") is None


def test_what_is_noted_already_is_left_as_it_is() -> None:
    state = noting("monday", "tuesday")
    assert note(state, "monday", at=EVENING) == Unchanged(state)
    raised = note(state, "monday", 2, EVENING)
    assert isinstance(raised, Changed)
    assert [entry.token for entry in raised.state.tokens] == ["tuesday", "monday"]
    assert raised.state.tokens[-1].generation == 2


def test_the_newest_tokens_are_kept_and_no_more() -> None:
    names = [f"{number:05}" for number in range(MAX_TOKENS + 2)]
    full = replace(noting("00000"), tokens=noting("00000").tokens * 0)
    entries = tuple(NotedToken(name, "r", 1, MORNING) for name in names[:MAX_TOKENS])
    state = replace(full, tokens=entries)
    for name in names[MAX_TOKENS:]:
        verdict = note(state, name)
        assert isinstance(verdict, Changed)
        state = verdict.state
    assert [entry.token for entry in state.tokens] == names[2:]


def test_tokens_leave_by_name_only() -> None:
    state = noting("monday", "tuesday", "friday")
    left = parent.without(state, {"monday", "friday", "never"})
    assert isinstance(left, Changed)
    assert [entry.token for entry in left.state.tokens] == ["tuesday"]
    assert parent.without(state, {"never"}) == Unchanged(state)


def test_old_tokens_are_those_noted_last_before_a_moment() -> None:
    state = note(noting("monday", "tuesday"), "friday", at=EVENING).state  # type: ignore[union-attr]
    noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
    assert [entry.token for entry in parent.before(state, noon)] == ["monday", "tuesday"]
    assert parent.before(state, datetime(2026, 11, 20, 8, tzinfo=UTC)) == []


def test_batch_jobs_are_told_from_streams_and_lost_registers_from_those_there() -> None:
    def state(job: str) -> JobState:
        return JobState("0" * 16, job, "target", "lineage", 1, "run")

    states = [state("nightly@tuesday"), state("clicks"), noting("monday", "tuesday")]
    states += [state("job@tuesday"), state("clicks2")]
    streams, batches = parent.batch_jobs(states)
    assert [stream.job for stream in streams] == ["clicks", "clicks2"]
    job, nightly = batches
    assert (job.job, [entry.token for entry in job.missing]) == ("job", ["monday"])
    assert (nightly.parent, nightly.missing) == (None, [])
    assert [one.job for one in nightly.states] == ["nightly@tuesday"]


def test_the_present_moment_can_be_compared() -> None:
    assert datetime.fromisoformat(parent.now()).tzinfo is not None
