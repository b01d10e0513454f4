"""Several systems asked side by side: what comes of it is what comes of asking them in turn."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar

import pytest

from abs_core.aborting import attempt_all
from abs_core.contracts import Committer
from abs_core.errors import ConfigError, RefusedError, UnavailableError
from abs_core.model import Committable, HandleName, InDoubt, Inspection, Outcome
from abs_core.parallel import CallRunner, answers, in_turn, side_by_side
from abs_core.several import CompositeCommitter
from abs_core.sinkmap import STRIDE, number_of

DEADLINE = 120.0
WAYS = pytest.mark.parametrize("way", [in_turn, side_by_side], ids=["in turn", "side by side"])


def failing(error: BaseException) -> Callable[[], str]:
    def call() -> str:
        raise error

    return call


def test_side_by_side_all_are_under_way_at_once() -> None:
    met = threading.Barrier(3)
    assert len(answers(side_by_side([lambda: met.wait(DEADLINE)] * 3))) == 3


@WAYS
def test_the_first_is_asked_in_the_calling_thread_and_alone_it_needs_no_other(
    way: CallRunner,
) -> None:
    assert way([threading.get_ident]) == [threading.get_ident()]
    assert way([threading.get_ident] * 2)[0] == threading.get_ident()
    assert way([]) == []


def test_answers_come_in_the_order_of_the_calls_and_not_of_the_replies() -> None:
    last = threading.Event()

    def slow(name: str) -> Callable[[], str]:
        def call() -> str:
            assert last.wait(DEADLINE)
            return name

        return call

    def quick() -> str:
        last.set()
        return "c"

    assert side_by_side([slow("a"), slow("b"), quick]) == ["a", "b", "c"]


def test_while_the_program_ends_it_asks_in_turn() -> None:
    """Then no pool takes work any more, and queries that are stopped end what they have open."""
    program = """
import atexit
from abs_core.parallel import side_by_side
atexit.register(lambda: print(side_by_side([lambda: 1, lambda: 2, lambda: 3])))
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == "[1, 2, 3]"


@WAYS
def test_of_several_errors_the_first_by_order_is_raised_and_tells_of_the_others(
    way: CallRunner,
) -> None:
    calls = [lambda: "a", failing(RefusedError("B.")), failing(UnavailableError("C."))]
    with pytest.raises(RefusedError, match=r"^B\.") as raised:
        answers(way(calls))
    assert raised.value.__notes__ == ["Beside it: UnavailableError: C. [ABS-UNAVAILABLE]"]


@WAYS
def test_what_no_target_has_said_goes_before_what_one_has(way: CallRunner) -> None:
    parts = [failing(UnavailableError("A.")), failing(ConfigError("B.", remedy="None."))]
    with pytest.raises(ConfigError, match=r"^B\.") as raised:
        attempt_all(parts, way)
    assert raised.value.__notes__ == ["Beside it: UnavailableError: A. [ABS-UNAVAILABLE]"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit()])
def test_an_interrupt_comes_up_when_what_is_under_way_has_ended(error: BaseException) -> None:
    interrupted, ended = threading.Event(), threading.Event()

    def interrupt() -> None:
        interrupted.set()
        raise error

    def other() -> None:
        assert interrupted.wait(DEADLINE)
        ended.set()

    with pytest.raises(type(error)):
        side_by_side([interrupt, other])
    assert ended.is_set()


def test_each_thread_has_the_callers_context() -> None:
    of_the_caller: ContextVar[str] = ContextVar("of_the_caller")
    of_the_caller.set("mine")
    assert side_by_side([of_the_caller.get] * 3) == ["mine"] * 3


class Answering(Committer):
    """A committer that commits, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.committed: list[HandleName] = []
        self._error = error

    def inspect(self, committables: Sequence[Committable]) -> dict[HandleName, Inspection]:
        return {c.handle: Inspection(Outcome.PREPARED) for c in committables}

    def commit(self, committables: Sequence[Committable]) -> dict[HandleName, Outcome]:
        if self._error is not None:
            raise self._error
        self.committed += [c.handle for c in committables]
        return dict.fromkeys(self.committed, Outcome.COMMITTED)

    def abort(self, handles: Sequence[HandleName]) -> None: ...

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        return []

    def forget(self, state: object) -> None: ...


def committable(sink: int) -> Committable:
    handle = HandleName("0" * 16, "job", 1, 0, sink * STRIDE, f"{sink:x}")
    return Committable(handle, 1, "")


def routed(way: CallRunner, *committers: tuple[Sequence[int], Answering]) -> Committer:
    def gone(number: int, of: Committable) -> ConfigError:
        return ConfigError(f"The sink {number} is gone.", remedy="None.")

    return CompositeCommitter(committers, number_of, gone, run_calls=way)


def test_no_systems_commit_is_left_out_because_another_has_failed_in_whatever_way() -> None:
    a, b, c = Answering(TypeError("a defect")), Answering(UnavailableError("B.")), Answering()
    with pytest.raises(TypeError, match="a defect") as raised:
        routed(side_by_side, ([0], a), ([1], b), ([2], c)).commit(
            [committable(n) for n in range(3)]
        )
    assert raised.value.__notes__ == ["Beside it: UnavailableError: B. [ABS-UNAVAILABLE]"]
    assert c.committed == [committable(2).handle]


@WAYS
def test_sinks_that_share_a_committer_are_asked_once_for_all_of_theirs(way: CallRunner) -> None:
    shared, own = Answering(), Answering()
    over = routed(way, ([1], own), ([2, 0], shared))
    handles = [committable(n).handle for n in range(3)]
    assert over.commit([committable(n) for n in range(3)]) == dict.fromkeys(
        handles, Outcome.COMMITTED
    )
    assert shared.committed == [handles[0], handles[2]]
    assert own.committed == [handles[1]]


@WAYS
def test_a_handle_of_a_sink_that_is_gone_is_refused_before_anything_is_committed(
    way: CallRunner,
) -> None:
    only = Answering()
    with pytest.raises(ConfigError, match="The sink 1 is gone"):
        routed(way, ([0], only)).commit([committable(0), committable(1)])
    assert only.committed == []
