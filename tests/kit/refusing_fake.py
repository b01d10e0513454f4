"""A fake target that can refuse rows, and a sink on it that asks before an epoch is decided."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from abs_core.contracts import Committer
from abs_core.model import Committable
from abs_testing.fakes.sink import FakeSink, HandleCommitter
from tests.kit.fake_harness import FakeHarness


class Rehearsing(HandleCommitter):
    """Staged rows stay the handles; ``compose`` asks the target whether it takes them."""

    def compose(self, committables: Sequence[Committable]) -> Sequence[Committable]:
        for committable in committables:
            with self._target.transaction() as db:
                db.execute("SAVEPOINT rehearsal")
                handle = [str(committable.handle)]
                rows = "SELECT id, value FROM staged WHERE handle = ?"
                db.execute(f"INSERT INTO data {rows}", handle)
                db.execute("ROLLBACK TO rehearsal")
        return committables


class RefusingFake(FakeHarness):
    """A fake target with a trigger that refuses rows."""

    def __init__(self, kind: type[HandleCommitter] = Rehearsing) -> None:
        super().__init__("wal", "append", own_register=False)
        target = self._target

        class Sink(FakeSink):
            def committer(self) -> Committer:
                return kind(target, keyed=False)

        self.new_sink = lambda: Sink(target, "wal", "append")

    @contextmanager
    def refusing(self) -> Iterator[None]:
        with self._target.transaction() as db:
            db.execute(
                "CREATE TRIGGER refusing BEFORE INSERT ON data "
                "BEGIN SELECT RAISE(ABORT, 'refused'); END"
            )
        try:
            yield
        finally:
            with self._target.transaction() as db:
                db.execute("DROP TRIGGER refusing")


def open_refusing(kind: type[HandleCommitter] = Rehearsing) -> closing[RefusingFake]:
    return closing(RefusingFake(kind))
