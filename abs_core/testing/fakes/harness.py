"""Harnesses of the fakes: what ``check_sink`` drives and looks into."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from abs_core.contracts import Sink
from abs_core.model import HandleName
from abs_core.testing.fakes.sink import FakeSink
from abs_core.testing.fakes.target import FakeTarget
from abs_core.testing.harness import Row


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
        with self._target.transaction() as db:
            found: list[Row] = db.execute("SELECT id, value FROM data").fetchall()
        return found

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

    def close(self) -> None:
        self._target.close()


@contextmanager
def open_fake(
    protocol: str, write: str, *, own_register: bool = True, path: Path | None = None
) -> Iterator[FakeHarness]:
    """A harness on an empty fake target."""
    harness = FakeHarness(protocol, write, own_register=own_register, path=path)
    try:
        yield harness
    finally:
        harness.close()


def _sink_on_file(path: Path, protocol: str, write: str) -> Sink:
    return FakeSink(FakeTarget(path), protocol, write)
