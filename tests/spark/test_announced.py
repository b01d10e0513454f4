"""What the planner checks before the first row waits for a target that is away; no Spark runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from abs_core.errors import AbsError, PreflightError, RefusedError, UnavailableError
from abs_core.model import Finding, Guarantee, Severity
from abs_core.patience import Patience
from abs_core.registers import MemoryRegister
from abs_sinks.options import CommonOptions
from abs_spark.names import Announced
from abs_spark.sink_spec import SinkSpec
from abs_spark.start import announce
from tests.kit.formats import Making

QUICK = Patience(seconds=30.0, first_pause=0.001)


@dataclass(frozen=True)
class Options:
    common: CommonOptions = field(default_factory=CommonOptions)
    patience: Patience = QUICK


@dataclass
class Fake:
    """A sink, and its register, of which each look fails as long as there are errors left."""

    preflight_fails: list[AbsError] = field(default_factory=list)
    load_fails: list[AbsError] = field(default_factory=list)
    findings: Sequence[Finding] = ()
    closed: int = 0

    def preflight(self, job: str) -> Sequence[Finding]:
        if self.preflight_fails:
            raise self.preflight_fails.pop(0)
        return self.findings

    def register(self) -> Fake:
        return self

    def load(self, job: str) -> object:
        if self.load_fails:
            raise self.load_fails.pop(0)
        return MemoryRegister().load(job)

    def guarantee(self) -> Guarantee:
        return Guarantee("2pc", "append", "at once", "nothing")

    def if_missing(self, check: Callable[[], None]) -> None:
        """Its target is there."""

    def close(self) -> None:
        self.closed += 1


def announced(sink: Fake, options: Any = None) -> Announced:
    def make(*_: object) -> Any:
        return sink

    return announce(SinkSpec(Making(make), options or Options(), pa.schema([])), "job")


def away() -> list[AbsError]:
    return [UnavailableError("It does not answer."), UnavailableError("It does not answer.")]


def test_a_target_that_is_away_for_a_moment_ends_no_query() -> None:
    sink = Fake(preflight_fails=away(), load_fails=away())
    assert announced(sink) == Announced(checked=True, shown=True)
    assert sink.closed == 1


def test_one_that_refuses_or_is_away_for_longer_than_patience_does() -> None:
    errors: tuple[AbsError, ...] = RefusedError("No."), UnavailableError("No.")
    for error in errors:
        for sink in (Fake(preflight_fails=[error]), Fake(load_fails=[error])):
            with pytest.raises(type(error)):
                announced(sink, Options(patience=Patience(seconds=0.0)))
            assert sink.closed == 1


def test_what_a_later_look_finds_is_refused_all_the_same() -> None:
    finding = Finding(Severity.ERROR, "It cannot keep the promise.", "change it.")
    with pytest.raises(PreflightError, match="cannot keep"):
        announced(Fake(preflight_fails=away(), findings=[finding]))
