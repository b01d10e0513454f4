"""Checks a state backend by the contract in ``abs_embedded.state.contracts``.

A rule drives whole runs: several subtasks, checkpoints that complete, fail or are cut off, restores
at another parallelism. ``check_snapshot_store`` checks stores; ``state_machine`` searches randomly.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial

from abs_core.errors import ConfigError, IdentityError
from abs_embedded.state.contracts import NewBackend, Version
from abs_embedded.state.heap import HeapBackend
from abs_embedded.testing import check_failures, check_queries
from abs_embedded.testing.state_case import (
    FLAT,
    GROUPS,
    KEYS,
    NESTED,
    SUBS,
    Model,
    StateCase,
    StateSubject,
)
from abs_testing.case import check_all, raises, rules_in

Rule = Callable[[StateCase], None]


def check_state(subject: StateSubject, rules: Sequence[Rule] | None = None) -> list[str]:
    """Run every rule on a job of its own; returns the rules' names.

    Raises AssertionError with the name of a broken rule.
    """

    def check(rule: Rule) -> None:
        with closing(StateCase(subject, f"job{secrets.token_hex(6)}")) as case:
            rule(case)

    chosen = applicable(subject) if rules is None else rules
    return check_all({rule.__name__: partial(check, rule) for rule in chosen})


def applicable(subject: StateSubject) -> list[Rule]:
    """The rules that apply to this backend."""
    return [*RULES, *(RULES_OF_SEVERAL if subject.in_flight > 1 else ())]


# Reading and writing


def what_is_put_is_got(case: StateCase) -> None:
    case.holds("at first")
    case.fill("v")
    case.holds("after a put of every key")
    case.put({KEYS[0]: b"", KEYS[1]: None, KEYS[2]: b"new"})
    case.put_deep({(KEYS[0], SUBS[0]): None, (KEYS[0], SUBS[1]): b"", (KEYS[1], SUBS[0]): b"new"})
    case.put_deep({(KEYS[2], sub): None for sub in SUBS})
    case.holds("after changes and deletions")


def of_a_key_that_is_put_twice_the_last_value_wins(case: StateCase) -> None:
    key = KEYS[3]
    other = next(
        candidate for candidate in KEYS[4:] if case.backend(candidate) is case.backend(key)
    )
    table = case.table(case.backend(key))
    first, last = case.value(b"1"), case.value(b"3")
    table.put_many([key, key, key], [first, None, last])
    assert table.get_many([key, other, key]) == [last, None, last], "the last put did not win"
    table.put_many([key, key], [first, None])
    assert table.get_many([key]) == [None], "the last put, a deletion, did not win"


def a_key_of_another_subtask_is_refused(case: StateCase) -> None:
    """At the latest when the snapshot is persisted: no restore would return the entry."""
    case.start(2, old=False)
    case.fill("v")
    key = next(key for key in KEYS if case.backend(key) is case.backends[1])

    def put_and_keep() -> None:
        case.table(case.backends[0]).put(key, case.value(b"astray"))
        case.persist(case.snapshot())

    raises(ConfigError, put_and_keep)


def state_under_another_register_is_refused_or_not_seen(case: StateCase) -> None:
    """Its generations and checkpoints have equal numbers."""
    case.fill("of the first job")
    for _ in range(3):
        case.put({KEYS[0]: b"new"})
        case.complete()
    case.begin_anew("another")
    try:
        for _ in range(3):
            case.put({KEYS[0]: b"of the second job"})
            case.complete()
            case.holds("under another register")
    except IdentityError:
        pass


def a_state_is_refused_under_another_shape(case: StateCase) -> None:
    case.fill("v")
    backend = case.backend(KEYS[0])
    raises(ConfigError, lambda: backend.table(FLAT, "value:float64"))
    raises(ConfigError, lambda: backend.table(NESTED, "list:bytes"))
    case.complete()
    case.start(2, old=False)
    raises(ConfigError, lambda: case.backends[0].table(FLAT, "value:float64"))
    assert case.backends[0].states() == sorted(case.shapes.items()), (
        "the restored states are not told"
    )


# Snapshots


def a_copy_is_not_changed_by_later_writes(case: StateCase) -> None:
    case.fill("before")
    case.put({KEYS[5]: None})
    number = case.snapshot()
    case.fill("after")
    case.put(dict.fromkeys(KEYS[::3]))
    case.put_deep({(key, sub): None for key in KEYS[::2] for sub in SUBS})
    case.holds("after the copy was taken")
    copied = case.decide(number, case.persist(number))
    case.crash(expect=copied)
    case.holds("restored")


def a_copy_is_not_changed_while_it_is_persisted(case: StateCase) -> None:
    for round_ in range(4):
        case.fill(f"before{round_}")
        number = case.snapshot()
        with ThreadPoolExecutor(1) as pool:
            persisted = pool.submit(case.persist, number)
            turn = 0
            while not persisted.done() or turn < 2:
                turn += 1
                case.fill(f"during{turn}")
                case.put(dict.fromkeys(KEYS[turn % 3 :: 3]))
        copied = case.decide(number, persisted.result())
        case.notify(number)
        case.crash(expect=copied)
        case.holds(f"restored, round {round_}")


def a_savepoint_is_not_changed_by_later_writes(case: StateCase) -> None:
    case.fill("before")
    copied, snapshots = case.copies[case.snapshot()]
    case.fill("after")
    case.put(dict.fromkeys(KEYS[::3]))
    store = case.subject.new_store()
    case.write_savepoint(store, snapshots)
    case.start(3, store, old=False)
    case.model = copied
    case.holds("restored from the savepoint")


def what_was_restored_is_what_was_saved(case: StateCase) -> None:
    case.fill("v")
    case.put_deep({(key, SUBS[0]): None for key in KEYS[::2]})
    case.crash(expect=case.complete())
    case.holds("restored")
    case.fill("w")
    case.crash(expect=case.complete())
    case.holds("restored again")
    case.holds_each_once("restored again")


def an_empty_state_can_be_saved_and_restored(case: StateCase) -> None:
    case.complete()
    case.crash(expect=case.complete())
    case.holds("restored from nothing")
    case.crash(expect=case.complete())
    for version in Version:
        (value,) = case.backend(KEYS[0]).read(FLAT, [KEYS[0]], version)
        assert value is None, f"a restored empty state has the {version} value {value!r}"


def a_state_that_nobody_asks_for_is_carried_along(case: StateCase) -> None:
    case.fill("v")
    saved = case.complete()
    case.crash(expect=saved)
    case.complete()
    for parallelism in (2, 3, 1):  # after a rescale a snapshot is no increment to what there was
        case.crash(parallelism, expect=saved)
        case.complete()
    case.crash(expect=saved)
    case.holds("restored for the fifth time")


def a_state_that_nobody_asks_for_can_be_dropped(case: StateCase) -> None:
    """It is in no later snapshot, and its name is free."""
    for dropped, other in ((FLAT, NESTED), (NESTED, FLAT)):
        case.fill("v")
        case.crash(expect=case.complete())
        for backend in case.backends:
            assert list(backend.unclaimed()) == sorted(case.shapes), "restored, and not asked for"
            backend.table(other, case.shapes[other])
            backend.drop(dropped)
            assert not backend.unclaimed()
            raises(ConfigError, partial(backend.drop, other))
        (case.model.flat if dropped == FLAT else case.model.deep).clear()
        case.complete()
        for handle in case.handles(case.checkpoint):
            assert [name for name, _ in handle.states] == [other]
        case.crash(3, expect=case.complete())
        assert all(list(backend.unclaimed()) == [other] for backend in case.backends)
        case.holds(f"{dropped} was dropped")
        case.put(dict.fromkeys(KEYS[::5], b"new"))
        case.put_deep({(KEYS[0], SUBS[2]): b"new"})
        case.crash(2, expect=case.complete())
        case.holds(f"{dropped} began anew")


def increments_add_up_to_the_whole(case: StateCase) -> None:
    case.fill("v")
    for step in range(30):
        case.put(dict.fromkeys(KEYS[step % 7 :: 7], b"%d" % step))
        case.put({KEYS[step % len(KEYS)]: None})
        case.put_deep({(KEYS[step % len(KEYS)], SUBS[step % len(SUBS)]): None})
        case.put_deep({(KEYS[-1 - step % 5], SUBS[step % 3]): b"%d" % step})
        case.complete()
        if step % 10 == 9:
            case.crash(expect=case.model)
            case.holds(f"restored after {step + 1} increments")
    case.holds_each_once("after 30 increments")


def a_sweep_leaves_what_the_kept_checkpoints_need(case: StateCase) -> None:
    case.fill("v")
    count = 0
    for step in range(12):
        case.put({KEYS[step]: b"%d" % step})
        saved = case.complete()
        case.sweep()
        count = max(count, len(case.store.blobs()))
        if step % 4 == 3:
            case.crash(expect=saved)
            case.holds(f"restored after sweep {step}")
    assert case.store.completed() == [case.checkpoint], "old records were left"
    named = {ref.key for h in case.handles(case.checkpoint) for ref in h.blobs}
    assert set(case.store.blobs()) == named, "blobs were left that no record names"


# Rescale and exchange


def each_key_is_kept_once_over_a_rescale(case: StateCase) -> None:
    case.fill("v")
    for parallelism in (3, 2, 5, GROUPS, 1, 4):
        case.put({KEYS[parallelism]: None, KEYS[0]: b"%d" % parallelism})
        case.crash(parallelism, expect=case.complete())
        case.holds(f"at parallelism {parallelism}")
        case.holds_each_once(f"at parallelism {parallelism}")


def a_restore_without_all_key_groups_is_refused(case: StateCase) -> None:
    case.fill("v")
    case.complete()
    handles = case.handles(case.checkpoint)
    case.crash(1, expect=None)
    place = case.place(0, 1)
    for wrong in (handles[:1], handles[1:], [*handles, handles[0]]):
        backend = case.subject.new_backend(case.store, place)
        raises(ConfigError, lambda b=backend, w=wrong: b.restore(w))  # type: ignore[misc]
        backend.close()


def a_savepoint_can_be_read_by_every_backend(case: StateCase) -> None:
    case.fill("v")
    case.complete()
    case.put({KEYS[0]: None, KEYS[1]: b""})
    case.put_deep({(KEYS[0], SUBS[1]): None})
    model = case.model.copy()
    _move(case, HeapBackend, 3, model, "on the heap")
    _move(case, case.subject.new_backend, 2, model, "back again")
    case.fill("w")
    case.crash(expect=case.complete())
    case.holds("restored from a checkpoint after the savepoint")


def _move(case: StateCase, to: NewBackend, parallelism: int, model: Model, when: str) -> None:
    """Move the job to another backend (and name) by a savepoint."""
    store = case.savepoint()
    subject = replace(case.subject, new_backend=to)
    case.close()
    case.subject, case.job = subject, f"{case.job}x"
    case.store = case.subject.new_store()
    case.start(parallelism, store)
    case.model = model.copy()
    case.holds(when)
    case.holds_each_once(when)


# Several checkpoints in flight


def several_in_flight_complete_in_order(case: StateCase) -> None:
    case.fill("v")
    case.complete()
    case.put({KEYS[0]: b"1", KEYS[1]: None})
    first = case.snapshot()
    case.put({KEYS[0]: b"2", KEYS[2]: None, KEYS[1]: b"back"})
    second = case.snapshot()
    case.put({KEYS[0]: b"3"})
    early, late = case.persist(first), case.persist(second)
    case.decide(first, early)
    case.notify(first)
    saved = case.decide(second, late)
    case.notify(second)
    case.crash(expect=saved)
    case.holds("restored from the second")


def a_later_checkpoint_may_overtake(case: StateCase) -> None:
    case.fill("v")
    case.complete()
    case.put({KEYS[0]: b"1", KEYS[1]: None})
    first = case.snapshot()
    case.put({KEYS[2]: None})
    second = case.snapshot()
    case.decide(second, case.persist(second))
    case.notify(second)
    case.copies.pop(first)
    case.put({KEYS[3]: b"3"})
    case.crash(expect=case.complete())
    case.holds("restored from what came after")


RULES_OF_SEVERAL: tuple[Rule, ...] = (
    several_in_flight_complete_in_order,
    a_later_checkpoint_may_overtake,
)
RULES: tuple[Rule, ...] = tuple(
    rule
    for module in (__name__, check_failures.__name__, check_queries.__name__)
    for rule in rules_in(module, "StateCase")
    if rule not in RULES_OF_SEVERAL
)
