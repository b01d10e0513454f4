"""A write that fails some times and then works: nothing counts as written before it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from abs_core.certificate import Certificate, MemoryCertificates
from abs_core.contracts import Conflict, Version
from abs_core.coordinator.certifier import Certifier
from abs_core.errors import AbsError, RefusedError, TargetError, UnavailableError
from abs_core.model import JobState
from abs_core.patience import Patience
from abs_testing.case import JOB, Case, rows
from tests.kit.fake_harness import open_fake

EPOCHS = [rows(10 * number, 3) for number in range(6)]
AT_ONCE = Patience(0.0)


class FailsFirst(MemoryCertificates):
    """Certificates, of which the first few cannot be written."""

    def __init__(self, times: int, error: type[TargetError]) -> None:
        super().__init__()
        self.left, self._error = times, error

    def write(self, certificate: Certificate) -> None:
        if self.left:
            self.left -= 1
            raise self._error("the checkpoint cannot be written (on purpose)")
        super().write(certificate)


@pytest.fixture
def case() -> Iterator[Case]:
    with open_fake("2pc", "append", own_register=False) as harness, closing(Case(harness)) as case:
        yield case


def certified_from(case: Case, times: int, error: type[TargetError]) -> int | None:
    """The first epoch of one run after which the certificate is there; None: after none."""
    certificates = FailsFirst(times, error)
    run = case.run(certificates=certificates, patience=AT_ONCE)
    found = None
    for number, part in enumerate(EPOCHS):
        run.epoch(number, part)
        if certificates.certificate is not None and found is None:
            found = number
    case.finished(*EPOCHS, when="after the last epoch")
    return found


@pytest.mark.parametrize("error", [RefusedError, UnavailableError])
@pytest.mark.parametrize("times", range(5))
def test_a_certificate_is_tried_at_every_epoch_until_it_is_written(
    times: int, error: type[TargetError], case: Case
) -> None:
    assert certified_from(case, times, error) == times


def _counts_as_written(right: Callable[..., None]) -> Callable[..., None]:
    def certify(self: Certifier, *given: object, **more: object) -> None:
        right(self, *given, **more)
        self._certified = True

    return certify


def test_a_certificate_that_failed_and_counts_as_written_is_found(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Certifier, "certify", _counts_as_written(Certifier.certify))
    assert certified_from(case, 2, RefusedError) is None


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("write", range(4))
@pytest.mark.parametrize("times", [1, 3])
def test_a_register_whose_write_fails_some_times_loses_and_doubles_nothing(
    write: int, times: int, after: bool, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = case.run().store.__class__
    right, calls = store.compare_and_set, 0

    def failing(
        self: object,
        job: str,
        expected: Version | None,
        state: JobState,
        deadline: float | None = None,
    ) -> Version | Conflict:
        nonlocal calls
        calls += 1
        if not write < calls <= write + times:
            return right(self, job, expected, state, deadline)  # type: ignore[arg-type]
        if after:  # it takes effect, and the answer is lost
            right(self, job, expected, state, deadline)  # type: ignore[arg-type]
        raise UnavailableError("the register does not answer (on purpose)")

    monkeypatch.setattr(store, "compare_and_set", failing)
    for number, part in enumerate(EPOCHS[:3]):
        for _restart in range(times + 2):
            try:
                case.run(patience=AT_ONCE).epoch(number, part)
                break
            except AbsError:
                continue
        else:
            raise AssertionError(f"epoch {number} did not come to its end")
    assert calls > write + times
    assert case.run().store.load(JOB) is not None
    case.finished(*EPOCHS[:3], when="after the last epoch")
