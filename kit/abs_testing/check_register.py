"""Checks a register store: one linearizable and durable compare-and-set cell per job.

Crashes within a call are not covered; the tests of ``FileRegister`` kill it in a loop.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial

from abs_core.births.parent import MAX_TOKENS, parent_key
from abs_core.contracts import Conflict, Inventory, RegisterStore, Stored, Version
from abs_core.errors import ProtocolError, UnavailableError
from abs_core.model import Committable, Decision, HandleName, JobState, NotedToken, Recent, job_key
from abs_testing.case import LOOK_ALIKES, check_all, raises, rules_in

NewStore = Callable[[], RegisterStore]
NewInventory = Callable[[], Inventory]
OldAnswers = Callable[[str], AbstractContextManager[object]]
"""Notes what reads of a job's cell are answered now; in the context they are answered so again."""


def check_register(new_store: NewStore) -> list[str]:
    """Run every rule on jobs of its own; the stores may be used by others at the same time.

    Args:
        new_store: builds a store on the same cells, as a new process would; called from threads.

    Returns:
        the names of the checked rules.

    Raises:
        AssertionError: a rule is broken; its name is in the message.
    """
    checks = (*CHECKS, *INVENTORY_CHECKS) if isinstance(new_store(), Inventory) else CHECKS
    return check_all({check.__name__: partial(check, new_store) for check in checks})


def a_job_that_never_ran_has_no_cell(new_store: NewStore) -> None:
    assert new_store().load(_job()) is None, "a job that never ran has a state"


def a_cell_is_created_once(new_store: NewStore) -> None:
    state = _state(_job())
    version = _put(new_store(), None, state)
    assert _conflicts(new_store(), None, replace(state, run="other")), "a cell was created twice"
    assert _load(new_store(), state.job) == Stored(state, version), "creation was not kept"


def a_cell_that_is_not_there_is_not_replaced(new_store: NewStore) -> None:
    job = _job()
    elsewhere = _put(new_store(), None, _state(_job()))
    assert _conflicts(new_store(), elsewhere, _state(job)), "a cell was replaced that was not there"
    assert new_store().load(job) is None, "a refused change made a cell"


def a_state_comes_back_as_it_was(new_store: NewStore) -> None:
    state = _full(_job())
    version = _put(new_store(), None, _state(state.job))
    _put(new_store(), version, state)
    loaded = _load(new_store(), state.job).state
    assert loaded == state, f"{loaded} is not what was put: {state}"


def the_largest_parent_record_comes_back_as_it_was(new_store: NewStore) -> None:
    tokens = tuple(
        NotedToken(f"{n:040}", f"{n:016x}", n, "2026-11-20T10:00:00+00:00")
        for n in range(MAX_TOKENS)
    )
    state = replace(_state(_job()), job=parent_key(_job()), tokens=tokens)
    _put(new_store(), None, state)
    assert _load(new_store(), state.job).state == state, "a parent record is not what was put"


def another_store_sees_a_change_at_once(new_store: NewStore) -> None:
    one, other, job = new_store(), new_store(), _job()
    version: Version | None = None
    for generation in range(1, 6):
        state = replace(_state(job), generation=generation)
        version = _put(one, version, state)
        assert _load(other, job) == Stored(state, version), f"generation {generation} is not seen"
        one, other = other, one


def an_old_version_conflicts_and_changes_nothing(new_store: NewStore) -> None:
    store, state = new_store(), _state(_job())
    old = _put(store, None, state)
    newer = replace(state, generation=2)
    new = _put(store, old, newer)
    assert _conflicts(new_store(), old, replace(state, generation=9)), "an old version was let in"
    assert _load(store, state.job) == Stored(newer, new), "a conflict has changed the cell"


def a_version_never_comes_again(new_store: NewStore) -> None:
    store, state = new_store(), _state(_job())
    first = _put(store, None, state)
    other = _put(store, first, replace(state, generation=2))
    again = _put(store, other, state)
    assert len({first, other, again}) == 3, "the same state has the same version again"
    assert _conflicts(store, first, replace(state, generation=9)), "a version came again"


def jobs_never_touch_each_other(new_store: NewStore) -> None:
    salt = secrets.token_hex(4)
    states = [_state(f"{salt}{name}") for name in (*LOOK_ALIKES, "a@")]
    states += [_state(job_key(f"{salt} ünï/code\\ ';--", "2024-01-01T00:00"))]
    for state in states:
        _put(new_store(), None, state)
    for state in states:
        assert _load(new_store(), state.job).state == state, (
            f"job {state.job!r} has another's state"
        )


def of_many_creations_one_wins(new_store: NewStore) -> None:
    state = _state(_job())
    states = [replace(state, run=f"run{n}") for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda s: new_store().compare_and_set(state.job, None, s), states))
    won = [s for s, r in zip(states, results, strict=True) if not isinstance(r, Conflict)]
    assert len(won) == 1, f"{len(won)} of 8 creations won"
    assert _load(new_store(), state.job).state == won[0], "the cell is not the winner's"


def no_change_is_lost_among_many_writers(new_store: NewStore) -> None:
    state, writers, times = _state(_job()), 6, 15
    _put(new_store(), None, state)

    def count(_: int) -> None:
        store = new_store()
        for _ in range(times):
            while True:
                stored = _load(store, state.job)
                raised = replace(stored.state, generation=stored.state.generation + 1)
                if not _conflicts(store, stored.version, raised):
                    break

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(count, range(writers)))
    counted = _load(new_store(), state.job).state.generation - state.generation
    assert counted == writers * times, f"{counted} of {writers * times} changes are there"


def every_job_is_listed_by_name(new_store: NewInventory) -> None:
    salt = secrets.token_hex(4)
    states = [_state(f"{salt}{name}") for name in ("b", "a", "b@1", "ab")]
    for state in states:
        _put(new_store(), None, state)
    names = [stored.state.job for stored in new_store().jobs()]
    mine = [name for name in names if name.startswith(salt)]
    assert mine == sorted(state.job for state in states), f"the jobs listed are {mine}"
    assert names == sorted(names), "jobs are not listed by name"


def others_on_a_target_are_told_and_tokens_are_one_job(new_store: NewInventory) -> None:
    salt = secrets.token_hex(4)
    where = {"a": "here", "b@1": "here", "b@2": "here", "c": "elsewhere", "aa": "here"}
    for name, target in where.items():
        _put(new_store(), None, replace(_state(f"{salt}{name}"), target=f"{salt}{target}"))
    for job, others in {"a": ["aa", "b"], "a@9": ["aa", "b"], "b@3": ["a", "aa"]}.items():
        names = new_store().others_on(f"{salt}here", f"{salt}{job}")
        wanted = [f"{salt}{other}" for other in others]
        assert list(names) == wanted, f"beside {job!r} write {names}, not {wanted}"


def a_retired_job_is_gone_and_so_are_its_versions(new_store: NewInventory) -> None:
    state = _state(_job())
    old = _put(new_store(), None, state)
    assert new_store().retire(state.job), "a job that was there was not retired"
    assert new_store().load(state.job) is None, "a retired job has a state"
    assert not new_store().retire(state.job), "a job was retired that was not there"
    anew = replace(state, register="fedcba9876543210", run="anew")
    _put(new_store(), None, anew)
    late = replace(state, generation=9)
    assert _conflicts(new_store(), old, late), (
        "a late request found the retired job's version again"
    )
    assert _load(new_store(), state.job).state == anew, "a late request changed the new cell"


def a_job_with_an_open_decision_is_not_retired(new_store: NewInventory) -> None:
    state = _state(_job())
    state = replace(state, open=(Decision(state.lineage, 0, state.generation, ()),))
    _put(new_store(), None, state)
    raises(ProtocolError, lambda: new_store().retire(state.job))
    assert _load(new_store(), state.job).state == state, "the decision is gone"


def a_store_says_where_a_cell_lies(new_store: NewInventory) -> None:
    assert new_store().place(_job()), "where a job's cell lies is not told"


def an_old_answer_lets_no_change_through(new_store: NewStore, old_answers: OldAnswers) -> None:
    """A server that was stopped answers as it would have before, until it hears of its successor.

    Not among ``CHECKS``: only stores that read before they write, or as they do, can break it.
    """
    zombie, state = new_store(), _state(_job())
    old = _put(new_store(), None, state)
    _load(zombie, state.job)
    answered = old_answers(state.job)
    newer = replace(state, generation=2)
    new = _put(new_store(), old, newer)
    changed: Version | Conflict = Conflict()
    with answered, suppress(UnavailableError):
        changed = zombie.compare_and_set(state.job, old, replace(state, run="zombie"))
    assert isinstance(changed, Conflict), "an old answer has let an old version in"
    assert _load(new_store(), state.job) == Stored(newer, new), "a change is lost"


CHECKS = rules_in(__name__, "NewStore")
"""Every rule; each takes a job name of its own."""

INVENTORY_CHECKS = rules_in(__name__, "NewInventory")
"""Every rule of an ``Inventory``, which the register of a sink is."""


def _job() -> str:
    return f"job{secrets.token_hex(8)}"


def _state(job: str) -> JobState:
    return JobState("0123456789abcdef", job, "target", "lineage", 1, "run")


def _full(job: str) -> JobState:
    """A state with every field set, and a decision of 300 handles."""
    handles = [HandleName("0123456789abcdef", job, 7, 42, n, f"{n:x}") for n in range(300)]
    extra = (("a", "\x01\"'\\"), ("ü", "☃\n"))
    committables = tuple(Committable(h, 10**12, "sha256:00", extra) for h in handles)
    return replace(
        _state(job),
        target="host=☃ 'quoted' \"x\"",
        generation=7,
        superseded=("run1", "run2"),
        frontier=40,
        open=(Decision("lineage", 41, 6, ()), Decision("lineage", 42, 7, committables)),
        recent=(Recent(41, None, 0), Recent(42, "sha256:ff", 10**15)),
        abandoned=(43, 44),
        tokens=(NotedToken("2026-11-20", "0123456789abcdef", 3, "2026-11-20T10:00:00+00:00"),),
    )


def _load(store: RegisterStore, job: str) -> Stored:
    stored = store.load(job)
    assert stored is not None, f"the cell of job {job!r} is gone"
    return stored


def _put(store: RegisterStore, expected: Version | None, state: JobState) -> Version:
    version = store.compare_and_set(state.job, expected, state)
    assert not isinstance(version, Conflict), f"a change of version {expected} conflicts"
    return version


def _conflicts(store: RegisterStore, expected: Version | None, state: JobState) -> bool:
    return isinstance(store.compare_and_set(state.job, expected, state), Conflict)
