"""A fake sink that composes: one handle of all that an epoch's tasks have staged."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace

from abs_core.contracts import Committer
from abs_core.errors import NotPreparedError
from abs_core.model import Committable
from abs_testing.fakes.sink import FakeSink, HandleCommitter
from abs_testing.fakes.target import FakeTarget


class ComposingCommitter(HandleCommitter):
    """One handle of all that was staged; ``lose`` rows of it go missing."""

    composes = True

    def __init__(self, target: FakeTarget, lose: int = 0) -> None:
        super().__init__(target, keyed=False)
        self._fake = target
        self._lose = lose

    def compose(self, committables: Sequence[Committable]) -> Sequence[Committable]:
        if not committables:
            return []
        name = replace(committables[0].handle, attempt=secrets.token_hex(8))
        found = 0
        with self._fake.transaction() as db:
            for one in committables:
                old = [str(one.handle)]
                if db.execute("SELECT 1 FROM prepared WHERE handle = ?", old).fetchone() is None:
                    raise NotPreparedError("It is gone.", handle=str(one.handle))
                copied = db.execute(
                    "INSERT INTO staged SELECT ?, id, value FROM staged WHERE handle = ?",
                    [str(name), *old],
                )
                found += copied.rowcount
            found -= self._lose
            db.execute("INSERT INTO prepared VALUES (?, ?, ?)", [str(name), name.job, found])
        return [Committable(name, found, "sha256:00")]


class ComposingSink(FakeSink):
    def __init__(self, target: FakeTarget, lose: int = 0) -> None:
        super().__init__(target, "wal", "append")
        self._composing = ComposingCommitter(target, lose)

    def committer(self) -> Committer:
        return self._composing
