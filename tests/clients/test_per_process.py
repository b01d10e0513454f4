"""What a process keeps for each server is one object, is closed once, and stays behind in a fork."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from abs_clients.per_process import PerProcess


class Kept:
    """Counts how often it is closed."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_threads_get_one_object_for_a_key() -> None:
    kept = PerProcess[str, Kept](Kept)
    ready = threading.Barrier(8)

    def ask(_: int) -> Kept:
        ready.wait(60)
        return kept.of("a")

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(ask, range(8)))
    assert len({id(one) for one in found}) == 1
    assert kept.of("b").key == "b"


def test_closing_one_key_leaves_the_others_and_what_is_closed_can_be_closed_again() -> None:
    kept = PerProcess[str, Kept](Kept)
    first, other = kept.of("a"), kept.of("b")
    kept.close("a")
    kept.close("never asked for")
    assert (first.closed, other.closed) == (1, 0)
    assert kept.of("a") is first, "who uses it meanwhile may have connected it again"
    kept.close()
    assert (first.closed, other.closed) == (2, 1)


def _ends_well_in_a_child(check: Callable[[], bool]) -> bool:
    child = os.fork()
    if child == 0:
        os._exit(0 if check() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_child_begins_with_none_and_never_closes_its_parents() -> None:
    kept = PerProcess[str, Kept](Kept)
    parents = kept.of("a")

    def check() -> bool:
        own = kept.of("a")
        kept.close()
        return own is not parents and own.closed == 1 and parents.closed == 0

    assert _ends_well_in_a_child(check)
    assert kept.of("a") is parents


def test_a_child_is_not_blocked_by_a_thread_of_its_parent() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(key: str) -> Kept:
        if key == "slow":
            begun.set()
            go_on.wait(60)
        return Kept(key)

    kept = PerProcess[str, Kept](slow)
    thread = threading.Thread(target=kept.of, args=("slow",))
    thread.start()
    begun.wait(60)
    try:
        # Made under the lock, which the child inherits as it is.
        assert _ends_well_in_a_child(lambda: kept.of("quick").key == "quick")
    finally:
        go_on.set()
        thread.join()
