"""The fake sink."""

from __future__ import annotations

from collections.abc import Sequence

from abs_core.contracts import Committer, RegisterStore, Sink, Task, Writer
from abs_core.errors import OptionError
from abs_core.model import Finding, Guarantee, JobState
from abs_core.routing import ByProtocol, NothingToCommit
from abs_testing.fakes.committers import HandleCommitter, TransactionCommitter
from abs_testing.fakes.register import FakeRegister
from abs_testing.fakes.target import FakeTarget
from abs_testing.fakes.writers import WRITERS

_WRITES = {"2pc": ("append",), "wal": ("append", "upsert"), "idempotent": ("upsert",)}
_VISIBLE = {
    "2pc": "per task, on commit",
    "wal": "whole epochs, on commit",
    "idempotent": "per task, before commit",
}


class FakeSink(Sink):
    """A sink on a ``FakeTarget``.

    Args:
        protocol: ``2pc``, ``wal`` or ``idempotent``.
        write: ``append`` or ``upsert`` (by ``id``).

    Raises:
        OptionError: the protocol does not do this kind of write.
    """

    def __init__(self, target: FakeTarget, protocol: str, write: str) -> None:
        if write not in _WRITES.get(protocol, ()):
            raise OptionError(
                f"The fake sink has no {write} under {protocol}.",
                remedy=f"take one of {_WRITES}.",
            )
        self._target = target
        self._protocol = protocol
        self._write = write

    @property
    def target(self) -> str:
        return f"fake:{self._target.name}"

    def writer(self, task: Task) -> Writer:
        return WRITERS[self._protocol](self._target, task)

    def committer(self) -> Committer:
        keyed = self._write == "upsert"
        committers: dict[str, Committer] = {
            "2pc": HandleCommitter(self._target, keyed=keyed),
            "wal": TransactionCommitter(self._target, keyed=keyed),
            "idempotent": NothingToCommit(),
        }
        return ByProtocol(committers, self._protocol)

    def register(self) -> RegisterStore:
        return FakeRegister(self._target)

    def preflight(self, job: str, tasks: int | None = None) -> Sequence[Finding]:
        return []

    def guarantee(self) -> Guarantee:
        return Guarantee(self._protocol, self._write, _VISIBLE[self._protocol], "nothing")

    def is_empty(self) -> bool:
        with self._target.transaction() as db:
            return db.execute("SELECT 1 FROM data LIMIT 1").fetchone() is None

    def fence(self, state: JobState) -> None:
        pass

    def close(self) -> None:
        self._target.close()
