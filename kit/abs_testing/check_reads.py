"""Checks that a failed read is never counted as absence of a register, certificate or handle.

Each read (of register, committer, and the engine's checkpoint) of a start and an epoch fails once. The
start must end as it would without the failure: with the same refusal, or with success, at the latest
after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from abs_core.certificate import Certificate, CertificateStore, MemoryCertificates
from abs_core.contracts import Stored
from abs_core.errors import AbsError, UnavailableError
from abs_core.patience import Patience
from abs_testing.calls import Loss, ReadOpener
from abs_testing.case import JOB, Case, raises, rows
from abs_testing.check_positions import NO_PATIENCE
from abs_testing.cuts import Cut, Halted
from abs_testing.engine import QUICK
from abs_testing.harness import Row

FIRST, SECOND = rows(0, 3), rows(10, 3)


@dataclass(frozen=True, slots=True)
class Start:
    """A start, and the job's history before it.

    Args:
        before: actions of an earlier run, without failures, with the same checkpoint.
        epoch: which the run writes whose reads fail; with its ``parts`` and ``fingerprint``.
        lineage: of that run.
    """

    before: Callable[[Case, MemoryCertificates], object]
    epoch: int = 0
    parts: tuple[Sequence[Row], ...] = (FIRST,)
    fingerprint: str = "one"
    lineage: str = "lineage"


def _written(case: Case, checkpoint: MemoryCertificates) -> None:
    case.run(certificates=checkpoint).epoch(0, FIRST, fingerprint="one")


def _lost(case: Case, checkpoint: MemoryCertificates) -> None:
    _written(case, checkpoint)
    assert checkpoint.certificate is not None
    checkpoint.certificate = replace(checkpoint.certificate, register="f" * 16)


def _gone(case: Case, checkpoint: MemoryCertificates) -> None:
    checkpoint.certificate = Certificate(JOB, "f" * 16, "elsewhere", 1, None, 0)


def _cut(case: Case, checkpoint: MemoryCertificates) -> None:
    run = case.run(certificates=checkpoint)
    before = Cut("co_commit" if run.co_commits else "commit")
    halted = case.run(certificates=checkpoint, cut=before)
    raises(Halted, lambda: halted.epoch(0, FIRST, SECOND, fingerprint="one"))


def _unfinished(case: Case, checkpoint: MemoryCertificates) -> None:
    """An epoch is committed, and the register, if it is a step of its own, does not say so yet."""
    if case.run(certificates=checkpoint).co_commits:
        _written(case, checkpoint)
        return
    finishing = Cut("compare_and_set", where=lambda state: state.frontier is not None)
    halted = case.run(certificates=checkpoint, cut=finishing)
    raises(Halted, lambda: halted.epoch(0, FIRST, fingerprint="one"))


def _nothing(case: Case, checkpoint: MemoryCertificates) -> None:
    """A job that never ran."""


STARTS = {
    "a first start": Start(_nothing),
    "a start that goes on": Start(_written, 1, (SECOND,), "two"),
    "a start that replays": Start(_written),
    "a start that finds an epoch cut off": Start(_cut, parts=(FIRST, SECOND)),
    "a start that finds an epoch committed and not finished": Start(_unfinished),
    "a start whose register is gone": Start(_gone),
    "a start whose register is another one": Start(_lost, 1, (SECOND,), "two"),
    "a start with another checkpoint": Start(_written, 1, (SECOND,), "two", lineage="another"),
    "a start that replays another input": Start(_written, fingerprint="another"),
}


def check_reads(opener: ReadOpener, name: str) -> int:
    """Fail each read of this start once, with patience and without; return the number of reads.

    Args:
        name: one of ``STARTS``.

    Raises:
        AssertionError: a start ends differently than without the failure; one line for each.
    """
    scene = STARTS[name]
    reads, *well = _ends(opener, scene)
    assert reads, f"{name}: no read went through what was to carry it"
    failures = []
    for failing in reads:
        for patience in (QUICK, NO_PATIENCE):
            _, *end = _ends(opener, scene, failing, patience)
            if end != well:
                waits = "with patience" if patience is QUICK else "without patience"
                failures.append(
                    f"{name}, {failing[1]} (call {failing[0]}) fails once, {waits}: it ends with "
                    f"{', '.join(end)}, and not with {', '.join(well)}"
                )
    assert not failures, f"{len(failures)} of {2 * len(reads)} reads:\n" + "\n".join(failures)
    return len(reads)


def _ends(
    opener: ReadOpener,
    scene: Start,
    failing: tuple[int, str] | None = None,
    patience: Patience = QUICK,
) -> tuple[list[tuple[int, str]], str, str, str]:
    """Start on an empty target, and let one read fail: ``failing`` is its number and kind.

    Reads are numbered within their kind: loops that wait for a server read more or less often.

    Returns:
        its reads, by number and kind; success, or the kind of error; what became of the register;
        the rows.
    """
    with opener() as (harness, calls), closing(Case(harness)) as case:
        checkpoint = MemoryCertificates()
        scene.before(case, checkpoint)
        store = case.run().store
        before = store.load(JOB)
        number, kind = failing or (1, "")
        calls.arm(number, None if failing is None else Loss.REQUEST, kind)
        outcome = _start(case, scene, calls.certificates(checkpoint), patience)
        if outcome == UnavailableError.__name__:  # the engine starts it again
            outcome = _start(case, scene, calls.certificates(checkpoint), patience)
        seen = list(calls.seen)
        named = ((seen[:n].count(name), name) for n, name in enumerate(seen, 1))
        reads = [read for read in named if calls.reads(read[1])]
        calls.arm(1, None)
        register = _became(before, store.load(JOB))
        return reads, outcome, register, f"rows {sorted(harness.read())}"


def _became(before: Stored | None, after: Stored | None) -> str:
    if after is None:
        return "there is no register"
    if before is None:
        return "a register was minted"
    same = after.state.register == before.state.register
    return "the register is as before" if same else "the register is another one now"


def _start(case: Case, scene: Start, checkpoint: CertificateStore, patience: Patience) -> str:
    """The kind of error that ends it, or success."""
    try:
        run = case.run(lineage=scene.lineage, certificates=checkpoint, patience=patience)
        run.epoch(scene.epoch, *scene.parts, fingerprint=scene.fingerprint)
    except AbsError as error:
        return type(error).__name__
    return "success"
