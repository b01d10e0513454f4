"""Harnesses of the fakes: what ``check_sink`` drives and looks into."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from abs_core.contracts import Sink
from abs_core.model import HandleName
from abs_testing.fakes.sink import FakeSink
from abs_testing.fakes.target import FakeTarget
from abs_testing.harness import Row


class FakeHarness:
    """A fake target, its sinks, and a look inside.

    Args:
        path: of the target's file; in memory where None (then ``new_sink`` cannot be pickled).
    """

    def __init__(
        self, protocol: str, write: str, *, own_register: bool = True, path: Path | None = None
    ) -> None:
        self.own_register = own_register
        self._target = FakeTarget(path)
        if path is None:
            self.new_sink: Callable[[], Sink] = partial(FakeSink, self._target, protocol, write)
        else:
            self.new_sink = partial(_sink_on_file, path, protocol, write)

    def read(self) -> Sequence[Row]:
        return read(self._target)

    def leftovers(self, job: str) -> Sequence[str]:
        with self._target.transaction() as db:
            found = db.execute(
                "SELECT 'prepared ' || handle FROM prepared WHERE job = :job"
                " UNION ALL SELECT 'marker ' || handle FROM marker WHERE job = :job"
                " UNION ALL SELECT DISTINCT 'staged ' || handle FROM staged"
                " WHERE handle LIKE '%:' || :job || ':%'",
                {"job": job},
            ).fetchall()
        return [what for (what,) in found]

    @contextmanager
    def held(self, handle: HandleName) -> Iterator[None]:
        with self._target.transaction() as db:
            db.execute("INSERT INTO held VALUES (?)", [str(handle)])
        try:
            yield
        finally:
            with self._target.transaction() as db:
                db.execute("DELETE FROM held WHERE handle = ?", [str(handle)])

    def saved(self, job: str) -> Callable[[], None]:
        with self._target.transaction() as db:
            rows = db.execute("SELECT * FROM register WHERE job = ?", [job]).fetchall()

        def restore() -> None:
            with self._target.transaction() as db:
                db.execute("DELETE FROM register WHERE job = ?", [job])
                db.executemany("INSERT INTO register VALUES (?, ?, ?)", rows)

        return restore

    def backup(self) -> Callable[[], None]:
        tables = ("data", "applied")
        with self._target.transaction() as db:
            saved = {name: db.execute(f"SELECT * FROM {name}").fetchall() for name in tables}

        def restore() -> None:
            with self._target.transaction() as db:
                for name, rows in saved.items():
                    db.execute(f"DELETE FROM {name}")
                    marks = ", ".join("?" * len(rows[0])) if rows else ""
                    db.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)

        return restore

    def remake(self) -> None:
        """See ``abs_testing.Remaking``: what is prepared is in the target."""
        with self._target.transaction() as db:
            for table in ("data", "applied", "prepared", "staged"):
                db.execute(f"DELETE FROM {table}")

    def close(self) -> None:
        self._target.close()


def open_fake(
    protocol: str, write: str, *, own_register: bool = True, path: Path | None = None
) -> closing[FakeHarness]:
    """A harness on an empty fake target."""
    return closing(FakeHarness(protocol, write, own_register=own_register, path=path))


def _sink_on_file(path: Path, protocol: str, write: str, state: Path | None = None) -> Sink:
    return FakeSink(FakeTarget(path, state), protocol, write)


def read(target: FakeTarget) -> Sequence[Row]:
    """Every row in the target."""
    with target.transaction() as db:
        found: list[Row] = db.execute("SELECT id, value FROM data").fetchall()
    return found


class ChangingFake:
    """A fake target in a folder, for ``check_changes``: by each protocol, and with its state elsewhere.

    Args:
        folder: empty.
        own_register: as of ``FakeHarness``.
    """

    def __init__(self, folder: Path, *, own_register: bool = True) -> None:
        self.own_register = own_register
        path = folder / "data.sqlite"
        states = {at: folder / f"{at}.sqlite" for at in STATES}
        self._places = [FakeHarness("2pc", "append", path=state) for state in states.values()]
        self._data = FakeTarget(path, states["here"])
        self.ways: dict[str, Callable[[], Sink]] = {
            f"{protocol} {write} {at}": partial(_sink_on_file, path, protocol, write, state)
            for protocol, write in WAYS
            if own_register or protocol != "idempotent"
            for at, state in states.items()
        }
        self.new_sink = next(iter(self.ways.values()))

    def read(self) -> Sequence[Row]:
        return read(self._data)

    def leftovers(self, job: str) -> Sequence[str]:
        return [what for place in self._places for what in place.leftovers(job)]

    def close(self) -> None:
        self._data.close()
        for place in self._places:
            place.close()


WAYS = (("2pc", "append"), ("wal", "append"), ("wal", "upsert"), ("idempotent", "upsert"))
STATES = ("here", "there")


@contextmanager
def open_changing_fake(*, own_register: bool = True) -> Iterator[ChangingFake]:
    """A harness on an empty fake target with several ways."""
    with tempfile.TemporaryDirectory(prefix="abs-fake-") as folder:
        harness = ChangingFake(Path(folder), own_register=own_register)
        try:
            yield harness
        finally:
            harness.close()
