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
from abs_core.registers import MemoryRegister
from abs_testing.case import JOB, Case, rows
from tests.kit.fake_harness import open_fake
from tests.planted import planted

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


def test_a_certificate_that_failed_and_counts_as_written_is_found(case: Case) -> None:
    with planted((Certifier, "certify", _counts_as_written(Certifier.certify)), match="None == 2"):
        assert certified_from(case, 2, RefusedError) == 2


class Unheard(MemoryRegister):
    """A register, of which some changes fail.

    Args:
        write, times: the number of the first change that fails, from 0, and how many do.
        after: the change is made, and its answer is lost.
    """

    def __init__(self, write: int, times: int, *, after: bool) -> None:
        super().__init__()
        self.changes, self._fails, self._after = 0, range(write, write + times), after

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState, deadline: float | None = None
    ) -> Version | Conflict:
        fails, self.changes = self.changes in self._fails, self.changes + 1
        if not fails:
            return super().compare_and_set(job, expected, state, deadline)
        if self._after:
            super().compare_and_set(job, expected, state, deadline)
        raise UnavailableError("the register does not answer (on purpose)")


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("write", range(4))
@pytest.mark.parametrize("times", [1, 3])
def test_a_register_whose_write_fails_some_times_loses_and_doubles_nothing(
    write: int, times: int, after: bool, case: Case
) -> None:
    store = Unheard(write, times, after=after)
    for number, part in enumerate(EPOCHS[:3]):
        for _restart in range(times + 2):
            try:
                case.run(store=store, patience=AT_ONCE).epoch(number, part)
                break
            except AbsError:
                continue
        else:
            raise AssertionError(f"epoch {number} did not come to its end")
    assert store.changes > write + times
    assert store.load(JOB) is not None
    case.finished(*EPOCHS[:3], when="after the last epoch")
