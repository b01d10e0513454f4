"""Checks the two functions of ``abs_spark.once``: kills, doubles and delays of a user's own write.

Each rule has an empty target of its own. What a target should have is what it has after the same
batches were written in peace. A process is cut off before each line of ``write``: by an exception that
nothing catches, or, with ``forked``, by SIGKILL of a child. Another one stands still there while its
successor looks and writes, and goes on afterwards.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from types import FrameType
from typing import Any, NamedTuple

from abs_core.certificate import MemoryCertificates
from abs_core.coordinator import Coordinator
from abs_core.ownwrite import Applied, OwnEpoch, OwnWrite, Token, Write
from abs_core.protocol import RunIdentity
from abs_core.registers import MemoryRegister
from abs_core.rowdigest import RowDigest

JOB, OTHER = "checked", "another"
LINES = 200
"""Of ``write`` are tried, at most."""


class OwnTarget(NamedTuple):
    """A user's two functions on an empty target, and a look at its rows.

    Args:
        read: the rows as any value that can be compared; the order of rows must not matter to it.
        keep: keeps the target's present state, as a backup or a version of its log does; what it
            returns restores that. None: nobody can restore the target.
    """

    write: Write
    applied: Applied
    read: Callable[[], object]
    keep: Callable[[], Callable[[], object]] | None = None


OwnOpener = Callable[[], AbstractContextManager[OwnTarget]]


class CutOff(BaseException):
    """The process has died here, as far as the user's functions can tell."""


@dataclass(frozen=True, slots=True)
class _Case:
    opener: OwnOpener
    batches: Sequence[Any]
    contents: Sequence[object]
    forked: bool
    patience: float

    def token(self, number: int, version: int = 0) -> Token:
        return Token(JOB, version or (1 << 32) + number)


def check_once(
    opener: OwnOpener, batches: Sequence[Any], *, forked: bool = False, patience: float = 2.0
) -> list[str]:
    """Run every rule.

    Args:
        opener: opens an empty target; called for each rule, and for each line of ``write``.
        batches: at least two, as ``write`` takes them. Each must change the rows. Of the first one an
            empty batch is made, by ``limit(0)`` or ``[:0]``.
        forked: kill real processes; only where ``write`` needs nothing that a fork breaks, as Spark is.
        patience: seconds to wait for a successor's write while the first one stands still, as it may
            wait for a lock that the first has.

    Returns:
        the names of the checked rules, in order.

    Raises:
        AssertionError: a rule is broken; the first line names it.
    """
    case = _Case(opener, batches, _in_peace(opener, batches), forked, patience)
    for rule in RULES:
        try:
            rule(case)
        except AssertionError as error:
            raise AssertionError(f"{rule.__name__}: {error}") from error
    return [rule.__name__ for rule in RULES]


def _in_peace(opener: OwnOpener, batches: Sequence[Any]) -> list[object]:
    """The content before and after each batch."""
    with opener() as target:
        contents = [target.read()]
        for number, batch in enumerate(batches):
            target.write(batch, Token(JOB, number + 1))
            contents.append(target.read())
    assert len(contents) > 2, "give two batches or more"
    same = [n for n, (before, after) in enumerate(pairwise(contents)) if before == after]
    assert not same, f"batch {same[0]} does not change the rows: a second write would not show"
    return contents


def a_version_is_of_its_application(case: _Case) -> None:
    with case.opener() as target:
        assert target.applied(JOB) is None, "applied must return None before the first write"
        target.write(case.batches[0], case.token(0))
        assert target.applied(JOB) == case.token(0).version, "applied must return what write stored"
        assert target.applied(OTHER) is None, "applied returns the version of another application"
        target.write(case.batches[1], Token(OTHER, 1))
        assert target.read() == case.contents[2], "two applications do not write beside each other"
        assert target.applied(JOB) == case.token(0).version, "another application took the version"


def a_look_changes_nothing(case: _Case) -> None:
    with case.opener() as target:
        target.applied(JOB)
        target.write(case.batches[0], case.token(0))
        looks = [target.applied(JOB) for _ in range(3)]
        assert looks == [case.token(0).version] * 3, f"applied returned {looks} one after the other"
        assert target.read() == case.contents[1], "applied changes the rows"


def a_version_that_is_not_higher_changes_nothing(case: _Case) -> None:
    for versions in ([0, 0], [1, 0]):
        with case.opener() as target:
            first, second = (case.token(number) for number in versions)
            target.write(case.batches[0], first)
            before = target.read()
            _tried(partial(target.write, case.batches[1], second))
            assert target.read() == before, f"{second} was written after {first}"
            assert target.applied(JOB) == first.version, f"{second} took the place of {first}"


def a_batch_without_rows_leaves_its_version(case: _Case) -> None:
    batch = case.batches[0]
    with case.opener() as target:
        empty = batch.limit(0) if hasattr(batch, "limit") else batch[:0]
        target.write(empty, case.token(0))
        assert target.read() == case.contents[0], "a batch without rows changes the rows"
        assert target.applied(JOB) == case.token(0).version, "its version is not stored"


def a_target_that_is_restored_has_the_version_of_its_rows(case: _Case) -> None:
    with case.opener() as target:
        if target.keep is None:
            return
        target.write(case.batches[0], case.token(0))
        restore = target.keep()
        target.write(case.batches[1], case.token(1))
        restore()
        assert target.read() == case.contents[1], "keep does not restore the rows"
        assert target.applied(JOB) == case.token(0).version, "the version is that of lost rows"
        later = case.token(1, 2 << 32)
        target.write(case.batches[1], later)
        assert target.read() == case.contents[2], "after it no later version is written"
        assert target.applied(JOB) == later.version, "after it no later version is seen"


def a_write_that_is_cut_off_is_there_with_its_version_or_not_at_all(case: _Case) -> None:
    for line in range(1, LINES):
        with case.opener() as target:
            target.write(case.batches[0], case.token(0))
            cut = _cut(target, case.batches[1], case.token(1), line, forked=case.forked)
            version, content = _both(target)
            where = f"cut off before line {line} of write"
            if content == case.contents[1]:
                assert version == case.token(0).version, f"{where}: the version is there alone"
            else:
                assert content == case.contents[2], f"{where}: a part of the rows is there"
                assert version == case.token(1).version, f"{where}: the rows are there alone"
            target.write(case.batches[1], case.token(1))
            assert target.read() == case.contents[2], f"{where}, and tried again: other rows"
        if not cut:
            return


def a_write_that_stood_still_is_the_second_of_two(case: _Case) -> None:
    for line in range(1, LINES):
        with case.opener() as target:
            target.applied(JOB)
            target.write(case.batches[0], case.token(0))
            stood = _overtaken(target, case.batches[1], case.token(1), line, case.patience)
            content = target.read()
            where = f"it stood still before line {line} of write while its successor wrote"
            if target.applied(JOB) != case.token(1).version:  # both may have failed
                assert content == case.contents[1], f"{where}: the rows are there alone"
                target.write(case.batches[1], case.token(1))
            assert target.read() == case.contents[2], f"{where}: other rows"
        if not stood:
            return


def a_job_that_dies_around_its_write_goes_on(case: _Case) -> None:
    for dies in ("before", "after"):
        with case.opener() as target:
            register, certificates = MemoryRegister(), MemoryCertificates()
            runs = iter(range(1000))
            for number, batch in enumerate(case.batches):
                for write in (_dying(target.write, dies), target.write, target.write):
                    own = OwnWrite(write, target.applied)
                    who = RunIdentity(JOB, "query", f"run {next(runs)}", "target")
                    job = Coordinator(who, register, own, certificates=certificates)
                    begun = job.begin(number, gaps_allowed=True, origin=certificates.read())
                    epoch = OwnEpoch.of(begun, number)
                    report = epoch.report(f"sha256:{number}", lambda: (0, RowDigest(0)))
                    epoch.offer_to(own, batch, who)
                    _tried(partial(job.commit, report))
                event = f"a job died {dies} its write of epoch {number}, and went on"
                assert target.read() == case.contents[number + 1], f"{event}: other rows"


RULES: tuple[Callable[[_Case], None], ...] = (
    a_look_changes_nothing,
    a_version_is_of_its_application,
    a_version_that_is_not_higher_changes_nothing,
    a_batch_without_rows_leaves_its_version,
    a_target_that_is_restored_has_the_version_of_its_rows,
    a_write_that_is_cut_off_is_there_with_its_version_or_not_at_all,
    a_write_that_stood_still_is_the_second_of_two,
    a_job_that_dies_around_its_write_goes_on,
)


def _both(target: OwnTarget) -> tuple[int | None, object]:
    """Version and rows of one moment: a write that was cut off may take effect later."""
    while True:
        version, content = target.applied(JOB), target.read()
        if target.applied(JOB) == version:
            return version, content


def _tried(call: Callable[[], object]) -> None:
    """Call it; its error, or its death, is what a job would see."""
    try:
        call()
    except (Exception, CutOff):  # noqa: BLE001 - whatever the user's functions raise
        return


def _dying(write: Write, when: str) -> Write:
    def dying(rows: Any, token: Token) -> None:
        if when == "after":
            write(rows, token)
        raise CutOff

    return dying


def _cut(target: OwnTarget, batch: Any, token: Token, line: int, *, forked: bool) -> bool:
    """Write, and die before that line; whether there is such a line."""
    if not forked:
        reached = threading.Event()

        def die() -> None:
            reached.set()
            raise CutOff

        with _before_line(target.write, line, die):
            _tried(lambda: target.write(batch, token))
        return reached.is_set()
    child = os.fork()
    if child == 0:
        with _before_line(target.write, line, lambda: os.kill(os.getpid(), signal.SIGKILL)):
            _tried(lambda: target.write(batch, token))
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def _overtaken(target: OwnTarget, batch: Any, token: Token, line: int, patience: float) -> bool:
    """Two writes of one token, the first of which stands still; whether there is such a line."""
    stands, goes_on = threading.Event(), threading.Event()

    def stand() -> None:
        stands.set()
        goes_on.wait()

    def first() -> None:
        with _before_line(target.write, line, stand):
            _tried(lambda: target.write(batch, token))

    def second() -> None:
        version = target.applied(JOB)
        if version is None or version < token.version:
            target.write(batch, token)

    older = threading.Thread(target=first, daemon=True)
    older.start()
    while older.is_alive() and not stands.wait(0.01):
        pass
    newer = threading.Thread(target=_tried, args=(second,), daemon=True)
    if stands.is_set():
        newer.start()
        newer.join(patience)
        goes_on.set()
        newer.join()
    older.join()
    return stands.is_set()


@contextmanager
def _before_line(write: Write, line: int, act: Callable[[], None]) -> Iterator[None]:
    """In this thread: act before the nth line that the user's module runs in ``write``."""
    code = getattr(write, "__code__", None) or type(write).__call__.__code__
    left = line
    seen: set[tuple[FrameType, int]] = set()

    def traced(frame: FrameType, event: str, value: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename != code.co_filename:
            return None
        # A line that comes again is the end of a with: an error there would keep what it holds.
        if event == "line" and (frame, frame.f_lineno) not in seen:
            seen.add((frame, frame.f_lineno))
            left -= 1
            if left == 0:
                act()
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        yield
    finally:
        sys.settrace(before)
