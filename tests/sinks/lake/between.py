"""What others do between the steps of a commit to a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest
from deltalake import DeltaTable
from pyiceberg.table import Transaction

from abs_core.contracts import Committer
from abs_core.errors import UnavailableError
from abs_core.model import Committable, HandleName, InDoubt, Inspection, JobState, Outcome
from abs_sinks.lake.committer import LakeCommitter
from abs_testing.case import Case


class Between(Committer):
    """The committer of a table's files; something happens once before they are completed."""

    def __init__(self, inner: Committer, happens: Callable[[], object]) -> None:
        self._inner = inner
        self._left = [happens]

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        return self._inner.inspect(committables)

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        if self._left:
            self._left.pop()()
        return self._inner.commit(committables)

    def abort(self, handles: Sequence[HandleName]) -> None:
        self._inner.abort(handles)

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        return self._inner.in_doubt(job)

    def forget(self, state: JobState) -> None:
        self._inner.forget(state)


def between(case: Case, happens: Callable[[], object]) -> LakeCommitter:
    """A committer that has looked at the table when this happens, and has completed no file yet."""
    made = case.sink().committer()
    assert isinstance(made, LakeCommitter)
    return LakeCommitter(made._table, made._folder, Between(made._inner, happens))


def unheard(patch: pytest.MonkeyPatch, error: Exception | None = None) -> list[int]:
    """The library's next commit to a table takes effect, and its reply is lost; empty after that."""
    left = [1]
    add, commit = DeltaTable.create_write_transaction, Transaction.commit_transaction

    def heard_of() -> None:
        if left:
            left.pop()
            raise error or UnavailableError("the reply is lost (on purpose)")

    def added(table: DeltaTable, *given: object, **more: object) -> None:
        add(table, *given, **more)  # type: ignore[arg-type]
        heard_of()

    def committed(transaction: Transaction) -> object:
        table = commit(transaction)
        heard_of()
        return table

    patch.setattr(DeltaTable, "create_write_transaction", added)
    patch.setattr(Transaction, "commit_transaction", committed)
    return left


def dies(patch: pytest.MonkeyPatch) -> None:
    """The process dies when the library is to commit to a table."""

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    patch.setattr(DeltaTable, "create_write_transaction", killed)
    patch.setattr(Transaction, "commit_transaction", killed)
