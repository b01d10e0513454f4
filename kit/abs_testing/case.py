"""A check's target: makes runs on it and asserts its content."""

from __future__ import annotations

import inspect
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Self, TypeVar, Unpack

from abs_core.contracts import RegisterStore, Sink
from abs_core.errors import AbsError
from abs_core.registers import MemoryRegister
from abs_testing.cuts import Cut, Halted
from abs_testing.engine import Run, RunSettings
from abs_testing.harness import Harness, Row

JOB = "job"
LOOK_ALIKES = ("a", "a.b", "a_b", "aXb", "A", "ab", "a%25b", "a@1", "a@10", "a-b")
"""Prefixes of each other, wildcards of SQL and of regular expressions, case, and batch tokens."""

PATIENCE = 30.0
"""Seconds for which a server may keep resources of a dead client."""


Epochs = Sequence[Sequence[Sequence[Row]]]
"""The rows of each task of each epoch."""


class Case:
    """A fresh target and its sink's guarantee. Use as a context manager, or ``close`` it.

    Args:
        harness: on an empty target.
    """

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self._sinks: list[Sink] = []
        self._foreign: RegisterStore | None = None if harness.own_register else MemoryRegister()
        self.guarantee = self.sink().guarantee()

    @property
    def hides(self) -> bool:
        """Whether rows are invisible until commit: all protocols but ``idempotent``."""
        return self.guarantee.protocol != "idempotent"

    @property
    def co_commits(self) -> bool:
        """Whether an epoch is decided, committed and finished in one transaction."""
        return self.harness.own_register and self.sink().committer().co_commits

    def sink(self) -> Sink:
        sink = self.harness.new_sink()
        self._sinks.append(sink)
        return sink

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, job: str = JOB, **settings: Unpack[RunSettings]) -> Run:
        """A new run of the job, which simulates a new process."""
        settings.setdefault("store", self._foreign)
        return Run(self.sink(), job, **settings)

    def halted(self, cut: Cut, /, *parts: Sequence[Row], **settings: Unpack[RunSettings]) -> Run:
        """A run that ends at the cut, in epoch 0 of these parts."""
        settings["cut"] = cut
        run = self.run(**settings)
        raises(Halted, lambda: run.epoch(0, *parts))
        return run

    def replayed(self, *parts: Sequence[Row], when: str) -> None:
        """Epoch 0 of these parts by a new run; then all of it is there once, and nothing is left."""
        self.run().epoch(0, *parts)
        self.finished(*parts, when=when)

    def holds(self, *expected: Iterable[Row], when: str) -> None:
        """Assert that a reader sees exactly these rows, each as often as given."""
        wanted = Counter(row for rows in expected for row in rows)
        actual = self._seen()
        missing, extra = wanted - actual, actual - wanted
        assert wanted == actual, (
            f"{when}: {missing.total()} rows are missing, {extra.total()} are there that must not "
            f"be. Missing {_some(missing)}; too many {_some(extra)}."
        )

    def expected(self, epochs: Epochs) -> list[Row]:
        """What a reader must see of these in the end: under upsert the last row of each key."""
        rows = written(epochs)
        return list(dict(rows).items()) if self.guarantee.write == "upsert" else rows

    def nothing_beyond(self, allowed: Iterable[Row], when: str) -> None:
        """Assert that no row is there twice, and none that was never written."""
        extra = self._seen() - Counter(allowed)
        assert not extra, f"{when}: rows that must not be there: {_some(extra)}"

    def _seen(self) -> Counter[Row]:
        return Counter((int(key), str(value)) for key, value in self.harness.read())

    def hides_all(self, when: str) -> None:
        """Assert that a reader sees nothing, under a protocol that hides rows until commit."""
        if self.hides:
            self.holds(when=when)

    def is_clean(self, *jobs: str, when: str) -> None:
        """Assert that the target's system holds nothing of the jobs besides rows and register."""
        for job in jobs or (JOB,):
            left: Sequence[str] = ()

            def gone(job: str = job) -> bool:
                nonlocal left
                left = self.harness.leftovers(job)
                return not left

            # A server may take a moment to notice that a client has gone.
            assert within(PATIENCE, gone), f"{when}: job {job!r} left behind: {', '.join(left)}"

    def finished(self, *expected: Iterable[Row], when: str) -> None:
        """``holds`` and ``is_clean`` together: the end of most checks."""
        self.holds(*expected, when=when)
        self.is_clean(when=when)


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    """Whether the condition becomes true before the deadline; polls every few milliseconds at first.

    A longer wait polls less often, up to every 50 ms: a condition may ask a server.
    """
    deadline = time.monotonic() + seconds
    pause = 0.01
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(1.1 * pause, 0.05)
    return True


E = TypeVar("E", bound=Exception)


def raises(kind: type[E], call: Callable[[], object]) -> E:
    """The error of this kind that the call raises; AssertionError if it raises none."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def rules_in(module: str, takes: str) -> tuple[Callable[..., None], ...]:
    """The rules of a module, in source order: its public functions of one parameter, for nothing.

    Args:
        takes: the parameter's annotation, as it is written.
    """
    values = (
        value for name, value in vars(sys.modules[module]).items() if not name.startswith("_")
    )
    functions = [f for f in values if inspect.isfunction(f) and f.__module__ == module]
    return tuple(
        f
        for f, signature in zip(functions, map(inspect.signature, functions), strict=True)
        if signature.return_annotation == "None"
        and [parameter.annotation for parameter in signature.parameters.values()] == [takes]
    )


def check_all(rules: Mapping[str, Callable[[], object]]) -> list[str]:
    """Run every rule and return their names. Raises as ``named``."""
    for name, rule in rules.items():
        with named(name):
            rule()
    return list(rules)


@contextmanager
def named(rule: str) -> Iterator[None]:
    """Whatever is raised inside is an AssertionError that names the rule."""
    try:
        yield
    except Exception as broken:
        prefix = "" if isinstance(broken, AssertionError) else f"{type(broken).__name__}: "
        raise AssertionError(f"{rule}: {prefix}{broken}") from broken


def consent_in(error: AbsError) -> str:
    """The consent token that the error names; AssertionError if it names none."""
    match = re.search(r"adopt=([0-9a-f]+)", error.remedy)
    assert match is not None, f"the error names no consent: {error}"
    return match[1]


def rows(start: int, count: int, text: str = "v") -> list[Row]:
    """``count`` rows with ids from ``start`` on."""
    return [(key, f"{text}{key}") for key in range(start, start + count)]


LEFT, RIGHT, MORE = rows(0, 3), rows(10, 3), rows(20, 3)


def written(epochs: Epochs) -> list[Row]:
    """All rows of these, in order."""
    return [row for parts in epochs for part in parts for row in part]


def _some(counted: Counter[Row]) -> str:
    shown = ", ".join(str(row) for row in sorted(counted)[:3])
    return f"[{shown}{', ...' if len(counted) > 3 else ''}]"
