"""Two jobs on one target, and somebody who puts parts of what they have back to older times.

A part is what a person can restore by itself: one job's register, the log of a table without its data,
a catalog without its warehouse, the offsets of a checkpoint without its certificate, and so on. Each
goes back to a time of its own. Then both jobs go on. Every row is there once in the end, unless a start
tells, before anything is written, that something went back. And if no job went on since, each goes on
exactly once the newest state of all parts is there again.

Not drawn, as nothing can tell it: a register and its certificate, both from before the job began; or
both from an older time, where the engine may leave epochs out (``foreachBatch``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from abs_core.certificate import MemoryCertificates
from abs_core.contracts import RegisterStore
from abs_core.errors import AbsError
from abs_core.patience import Patience
from abs_core.registers import MemoryRegister
from abs_testing.case import Case, rows
from abs_testing.cuts import Cut, Halted
from abs_testing.engine import Run
from abs_testing.harness import Harness, Row
from tests.kit.fake_harness import FakeHarness, open_fake
from tests.sinks.delta.harness import TableHarness as DeltaTable
from tests.sinks.iceberg.harness import TableHarness as IcebergTable
from tests.sinks.lake.conftest import in_folder

Put = Callable[[], object]
"""Puts a part back to what it was when it was kept."""

Keep = Callable[[], Put]
"""Keeps a part as it is now."""

JOBS = ("a", "b")
COPIED = "the register of another job"
REGISTERS = ("register", "state", "warehouse", COPIED)
"""How the names of parts that hold registers begin."""
ENDS = (None, None, None, None, Cut("commit"), Cut("forget"), "not noted", "idle")
"""How an epoch ends: the process dies, or its engine does not note the epoch, or there are no rows."""

QUICK = Patience(seconds=0.2)


def parts_of(job: str, epoch: int) -> tuple[list[Row], list[Row]]:
    """The rows of its two tasks."""
    first = JOBS.index(job) * 1_000_000 + epoch * 100
    return rows(first, 2), rows(first + 50, 1)


def files(folder: Path, *patterns: str) -> Keep:
    """The files of these names below the folder, whose others stay."""

    def named() -> Iterator[Path]:
        return (path for pattern in patterns for path in folder.glob(pattern) if path.is_file())

    def keep() -> Put:
        kept = {path: path.read_bytes() for path in named()}

        def put() -> None:
            for path in set(named()) - kept.keys():
                path.unlink()
            for path, content in kept.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)

        return put

    return keep


def another_ones(folder: Path, pattern: str) -> Keep:
    """Not kept: to put it back, the register of the second job is copied over the first one's."""

    def put() -> None:
        for other in list(folder.glob(pattern.format(job=JOBS[1]))):
            (other.parent / f"{JOBS[0]}.json").write_bytes(other.read_bytes())

    return lambda: put


def _of_delta(harness: Harness) -> dict[str, Keep]:
    assert isinstance(harness, DeltaTable)
    folder, registers = Path(harness.options.path), "_abs/register/{job}.json"
    return {
        "log": files(folder, "_delta_log/**/*"),
        "data": files(folder, "*.parquet"),
        "state": files(folder, "_abs/**/*"),
        **{f"register {job}": files(folder, registers.format(job=job)) for job in JOBS},
        COPIED: another_ones(folder, registers),
    }


def _of_iceberg(harness: Harness) -> dict[str, Keep]:
    assert isinstance(harness, IcebergTable)
    folder = Path(harness.catalog["uri"].removeprefix("sqlite:///")).parent
    registers = "warehouse/**/_abs/register/{job}.json"
    return {
        "catalog": files(folder, "catalog.db"),
        "metadata": files(folder, "warehouse/**/metadata/*"),
        "data": files(folder, "warehouse/**/*.parquet"),
        "warehouse": files(folder, "warehouse/**/*"),
        "state": files(folder, "warehouse/**/_abs/**/*"),
        **{f"register {job}": files(folder, registers.format(job=job)) for job in JOBS},
        COPIED: another_ones(folder, registers),
    }


def _of_fake(register: MemoryRegister | None, harness: Harness) -> dict[str, Keep]:
    assert isinstance(harness, FakeHarness)

    def cell(job: str) -> Put:
        if register is None:
            return harness.saved(job)
        kept = register.load(job)

        def put() -> None:
            register._cells.pop(job, None)
            if kept is not None:
                register._cells[job] = kept

        return put

    registers = {f"register {job}": partial(cell, job) for job in JOBS}
    return {"target": harness.backup, **registers}


@dataclass
class System:
    """A target that can be opened, and its parts.

    Args:
        register: where the jobs' registers are; None: in the target's own system.
    """

    open: Callable[[], AbstractContextManager[Harness]]
    parts: Callable[[Harness], Mapping[str, Keep]]
    register: RegisterStore | None = None


def system(name: str, folder: Path) -> System:
    if name == "delta":
        return System(in_folder("delta", folder), _of_delta)
    if name == "iceberg":
        return System(in_folder("iceberg", folder), _of_iceberg)
    register = MemoryRegister() if name == "fake beside its register" else None
    opened = partial(open_fake, "2pc", "append", own_register=register is None)
    return System(opened, partial(_of_fake, register), register)


@dataclass
class Engine:
    """What the checkpoint of a job has.

    Args:
        next: the epoch that comes next.
        finished: epochs that a reader has seen; the checkpoint does not know it.
    """

    job: str
    next: int = 0
    finished: int = 0
    certificates: MemoryCertificates = field(default_factory=MemoryCertificates)

    def offsets(self) -> Put:
        return partial(setattr, self, "next", self.next)

    def certificate(self) -> Put:
        return partial(setattr, self.certificates, "certificate", self.certificates.certificate)


class History:
    """One random history."""

    def __init__(self, system: System, harness: Harness, case: Case, random: Random) -> None:
        self._system, self._harness, self._case, self._random = system, harness, case, random
        self._gaps = random.random() < 0.3
        self._engines = [Engine(job) for job in JOBS]
        self._story: list[str] = []

    def live(self) -> None:
        """Both jobs write, parts go back, and both go on.

        Raises:
            AssertionError: rows are missing or there twice, and nobody was told.
        """
        for engine in self._engines:
            self._epoch(engine, None)
        kept = [self._kept()]
        for _ in range(self._random.randint(1, 6)):
            self._epoch(self._random.choice(self._engines), self._random.choice(ENDS))
            if self._random.random() < 0.5:
                kept.append(self._kept())
        newest = self._kept()
        for name in self._chosen(sorted(newest)):
            time = self._random.randrange(len(kept))
            self._story.append(f"{name} goes back to time {time} of {len(kept)}")
            kept[time][name]()
        told, went_on = set[str](), False
        for engine in [*self._random.choices(self._engines, k=2), *self._engines]:
            before = self._seen()
            try:
                self._epoch(engine, None)
                went_on = True
            except AbsError as error:
                self._story.append(f"{engine.job} is told: {type(error).__name__}: {error.what}")
                told.add(engine.job)
                now = self._seen()
                assert before is None or now is None or now <= before, self._failed(
                    "it has written"
                )
        self._check([engine for engine in self._engines if engine.job not in told])
        if told and not went_on:
            self._story.append("the newest state of all parts is put back")
            for name, put in newest.items():
                if name != COPIED:
                    put()
            for engine in self._engines:
                try:
                    self._epoch(engine, None)
                except AbsError as error:
                    raise AssertionError(self._failed(str(error))) from error
            self._check(self._engines)

    def _chosen(self, names: Sequence[str]) -> list[str]:
        chosen = self._random.sample(names, self._random.choice([1, 1, 2, 2, 3]))
        certificates = [name for name in chosen if name.startswith("certificate")]
        if self._gaps and any(name.startswith(REGISTERS) for name in chosen):
            return [name for name in chosen if name not in certificates]
        return chosen

    def _epoch(self, engine: Engine, ends: Cut | str | None) -> None:
        """The next epoch of a job; raises its errors."""
        epoch = engine.next
        self._story.append(f"{engine.job}: epoch {epoch}, {ends}")
        run = self._run(engine, ends if isinstance(ends, Cut) else None)
        if ends == "idle":
            run.begin(epoch)
            return
        try:
            run.epoch(epoch, *parts_of(engine.job, epoch))
        except Halted:
            return
        engine.finished = max(engine.finished, epoch + 1)
        engine.next += ends != "not noted"

    def _run(self, engine: Engine, cut: Cut | None) -> Run:
        return self._case.run(
            engine.job,
            lineage=f"lineage of {engine.job}",
            store=self._system.register,
            certificates=engine.certificates,
            patience=QUICK,
            gaps=self._gaps,
            cut=cut,
        )

    def _kept(self) -> dict[str, Put]:
        parts = dict(self._system.parts(self._harness))
        for engine in self._engines:
            parts[f"offsets {engine.job}"] = engine.offsets
            parts[f"certificate {engine.job}"] = engine.certificate
        return {name: keep() for name, keep in parts.items()}

    def _seen(self) -> Counter[Row] | None:
        """What readers see; None: they are told that files of the table are missing."""
        try:
            return Counter((int(key), str(value)) for key, value in self._harness.read())
        except (OSError, AbsError):
            return None

    def _check(self, engines: Sequence[Engine]) -> None:
        seen = self._seen()
        if seen is None:
            return
        assert max(seen.values(), default=1) == 1, self._failed("a row is there twice")
        for engine in engines:
            for epoch in range(engine.finished):
                due = {row for part in parts_of(engine.job, epoch) for row in part}
                what = f"rows of epoch {epoch} of {engine.job} are missing"
                assert due <= seen.keys(), self._failed(what)

    def _failed(self, what: str) -> str:
        return "\n".join([what, *self._story])


@contextmanager
def history(name: str, folder: Path, random: Random) -> Iterator[History]:
    """A history on a new target."""
    where = system(name, folder)
    with where.open() as harness, Case(harness) as case:
        yield History(where, harness, case, random)
