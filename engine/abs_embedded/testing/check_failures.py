"""Rules of state backends: failed checkpoints, crashes, older runs that go on, and damaged blobs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from abs_core.errors import AbsError, CorruptionError
from abs_embedded.testing.state_case import (
    KEYS,
    SUBS,
    StateCase,
)
from abs_testing.case import raises


def a_failed_checkpoint_is_part_of_the_next(case: StateCase) -> None:
    case.fill("v")
    case.complete()
    case.put({KEYS[0]: b"in the failed one", KEYS[1]: None})
    case.put_deep({(KEYS[0], SUBS[0]): None})
    case.persist(failed := case.snapshot())
    case.abort(failed)
    case.put({KEYS[2]: b"later"})
    case.abort(case.snapshot())  # this one was not even persisted
    case.holds("after two failed checkpoints")
    case.crash(expect=case.complete())
    case.holds("restored from the next one")


def a_crash_after_failed_checkpoints_goes_back_behind_them(case: StateCase) -> None:
    case.fill("v")
    saved = case.complete()
    for text in ("first", "second"):
        case.fill(text)
        case.put({KEYS[0]: None})
        case.persist(failed := case.snapshot())
        case.abort(failed)
    case.crash(expect=saved)
    case.holds("restored")


def a_crash_before_the_record_goes_back_to_the_one_before(case: StateCase) -> None:
    case.fill("v")
    saved = case.complete()
    for persisted in (False, True):
        case.fill(f"lost{persisted}")
        case.put(dict.fromkeys(KEYS[::2]))
        number = case.snapshot()
        if persisted:
            case.persist(number)
        case.put({KEYS[0]: b"lost too"})
        case.crash(expect=saved)
        case.holds(f"restored, persisted {persisted}")
        case.put({KEYS[1]: b"%d" % persisted, KEYS[2]: None})
        saved = case.complete()
        case.crash(expect=saved)
        case.holds(f"restored from the one after, persisted {persisted}")


def a_crash_after_the_record_keeps_the_checkpoint(case: StateCase) -> None:
    case.fill("v")
    case.complete()
    case.fill("w")
    number = case.snapshot()
    case.put({KEYS[0]: b"lost"})
    copied = case.decide(number, case.persist(number))  # and nobody was notified
    case.crash(expect=copied)
    case.holds("restored")
    case.put({KEYS[0]: b"next"})
    case.crash(expect=case.complete())
    case.holds("restored from the next one")


def an_older_run_that_goes_on_changes_nothing(case: StateCase) -> None:
    case.fill("v")
    saved = case.complete()
    case.put({KEYS[0]: b"of the old run"})
    old, number = list(case.backends), case.checkpoint + 1
    case.start(2)
    case.model = saved.copy()
    case.holds("restored beside the old run")
    for backend in old:
        try:
            backend.snapshot(number).persist()
        except AbsError:
            continue  # fenced
    case.put({KEYS[1]: b"of the new run"})
    case.checkpoint += 1
    case.holds("after the old run has persisted")
    saved = case.complete()
    for backend in old:
        backend.close()
    case.crash(expect=saved)
    case.holds("restored")


def damage_is_named(case: StateCase) -> None:
    case.fill("v")
    case.complete()
    case.put({KEYS[0]: b"more"})
    case.complete()
    handles = case.handles(case.checkpoint)
    changes: list[Callable[[bytes], bytes] | None] = [
        None,
        lambda content: content[:-1],
        # Even if the content can still be read, but a value has changed.
        *(partial(_flipped, part=part) for part in range(1, 8)),
        lambda content: next(other for other in contents if other != content),
    ]
    refs = [ref for handle in handles for ref in handle.blobs]
    contents = [case.store.get(ref) for ref in refs]
    for ref in {refs[0], refs[-1]} if refs else set():
        content = case.store.get(ref)
        for change in changes:
            case.subject.damage(case.store, ref.key, change)
            error = raises(CorruptionError, lambda: case.start(2, old=False))
            assert ref.key in str(error), f"the error does not name {ref.key}: {error}"
            case.store.put(ref.key, content)
    case.start(2, old=False)
    case.holds("restored once the damage is repaired")


def _flipped(content: bytes, part: int) -> bytes:
    """The content with one bit flipped, at that many eighths."""
    place = len(content) * part // 8
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
