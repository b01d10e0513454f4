"""Dead letters in a place that only grows, a topic or a folder: listed, shown, and written again.

A replay marks what it has written by one more letter there, under the decision of the rows; it is a job
of its own, whose runs fence each other: so a letter is written again once, whoever dies.
"""

from __future__ import annotations

import json
import secrets
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Protocol

import pyarrow as pa

from abs_core.contracts import Committer, RegisterStore, Task
from abs_core.coordinator import Coordinator, Report
from abs_core.errors import ContentionError, OptionError
from abs_core.model import JobState, Wrote, job_key
from abs_core.protocol import RunIdentity, Skip
from abs_sinks.deadletters.letter import LETTERS, LISTED, changes_of, schema_of, written_as
from abs_sinks.deadletters.place import KeptLetters, not_shown, of_target, readable, tell_unread
from abs_sinks.deadletters.writer import BuryingWriter

REPLAYED = "replayed"
"""The code of a letter that marks others; its row is the list of their ids."""

UNREADABLE = "unreadable"
"""The code of what is no letter."""


class BuryingSink(Protocol):
    """A sink that writes dead letters beside rows."""

    @property
    def target_id(self) -> str: ...

    def committer(self) -> Committer: ...

    def register(self) -> RegisterStore: ...

    def fence(self, state: JobState) -> None: ...

    def raw_writer(self, task: Task) -> BuryingWriter:
        """The writer itself, which can be told where its dead letters go (``bury_in``)."""
        ...

    def close(self) -> None: ...


class AppendedLetters(KeptLetters):
    """See ``KeptLetters``. Every call reads all letters that are there."""

    @abstractmethod
    def _read(self) -> Iterable[tuple[str, bytes]]:
        """Each letter's id and its JSON, in the order of their ids."""

    @abstractmethod
    def _sink(self, schema: pa.Schema, written: Mapping[str, str]) -> BuryingSink:
        """The sink that rows of these columns are written again to, with the same dead letters.

        Args:
            written: options by which they were to be written; those of the call come first.
        """

    @property
    @abstractmethod
    def _target(self) -> str:
        """What letters of rows that the sink refuses have in the field ``sink``."""

    @property
    @abstractmethod
    def _place(self) -> str:
        """Where the letters are, for errors."""

    def found(
        self, *, job: str | None = None, code: str | None = None, replayed: bool = False
    ) -> list[dict[str, Any]]:
        return [
            {name: letter[name] for name in ("id", *LISTED, "replayed")}
            for letter in self._letters()
            if job in (None, letter["job"])
            and code in (None, letter["code"])
            and (replayed or letter["replayed"] is None)
        ]

    def shown(self, ids: Sequence[int | str]) -> list[dict[str, Any]]:
        wanted = set(map(str, ids))
        return [letter for letter in self._letters() if letter["id"] in wanted]

    def replay(self, ids: Sequence[int | str], refused_by: str | None = None) -> int:
        waiting = of_target(self._waiting(ids), lambda: self._target, refused_by)
        groups, unread = readable(waiting)
        for letters, batch in groups:
            if changes_of(letters[0]["schema"]):
                raise OptionError(
                    f"Letter {letters[0]['id']} of {self._place} is a change: written again it would "
                    "come after newer ones, and a delete would be a row. Nothing was written.",
                    remedy="leave such letters out of the call; see what they hold (`abs deadletters "
                    "show`), and send what still holds through the job's input, with a new position.",
                )
            names = schema_of(letters[0]["schema"]).names
            if hidden := [name for name in names if name not in batch.schema.names]:
                remedy = (
                    "leave such letters out of the call; send their rows again from the source."
                )
                raise not_shown(letters[0], hidden, remedy)
        written = 0
        for letters, batch in groups:
            sink = self._sink(batch.schema, written_as(letters[0]["schema"]))
            try:
                written += self._replay([letter["id"] for letter in letters], batch, sink)
            finally:
                sink.close()
        tell_unread(unread, written)
        return written

    def _replay(self, ids: Sequence[int | str], batch: pa.RecordBatch, sink: BuryingSink) -> int:
        which = blake2b(f"{self._place} {sink.target_id}".encode(), digest_size=8).hexdigest()
        job = job_key("deadletters", which)
        stored = sink.register().load(job)
        last = None if stored is None else stored.state.last_decided
        epoch = 0 if last is None else last + 1
        identity = RunIdentity(job, which, secrets.token_hex(8), sink.target_id)
        committer = sink.committer()
        coordinator = Coordinator(identity, sink.register(), committer, fence=sink.fence)
        state, planned = coordinator.begin(epoch)
        # An earlier replay can decide nothing from here on; what it decided must be seen below.
        committer.forget(coordinator.roll_forward())
        waiting = self._waiting(ids)
        groups = readable(waiting)[0]
        again = groups[0][1] if groups else None
        if isinstance(planned, Skip) or (again is not None and again.schema != batch.schema):
            raise ContentionError(
                f"Somebody else replays dead letters of {self._place}.",
                remedy="list them again; nothing was written by this call.",
            )
        if again is None:
            return 0
        writer = sink.raw_writer(Task(state.register, job, state.generation, epoch, 0, _attempt()))
        try:
            if bad := writer.bad_rows(again):
                raise bad.error(again)
            writer.write(again)
            writer.bury(_mark(job, epoch, [letter["id"] for letter in waiting]))
            made = writer.pre_commit()
        except BaseException:
            writer.abort()
            raise
        assert made is not None, "rows were written"
        coordinator.commit(Report(epoch, [Wrote(made.rows, made)], None))
        return len(waiting)

    def _waiting(self, ids: Sequence[int | str]) -> list[dict[str, Any]]:
        return [letter for letter in self.shown(ids) if letter["replayed"] is None]

    def _letters(self) -> list[dict[str, Any]]:
        letters, replayed = [], dict[str, str]()
        for id_, text in self._read():
            letter = self._parsed(id_, text)
            if letter["code"] == REPLAYED:
                replayed |= dict.fromkeys(letter["row"], letter["at"])
            else:
                letters.append(letter)
        return [{**letter, "replayed": replayed.get(letter["id"])} for letter in letters]

    def _parsed(self, id_: str, text: bytes) -> dict[str, Any]:
        try:
            letter = json.loads(text)
            if letter["code"] == REPLAYED:
                letter["row"] = list(json.loads(letter["row"]))
            return {"id": id_, **{name: letter[name] for name in LETTERS.names}}
        except (ValueError, KeyError, TypeError):
            # Named among the others, which are read all the same.
            letter = dict.fromkeys(LETTERS.names)
            reason = {
                "code": UNREADABLE,
                "message": f"What {self._place} holds here is no dead letter.",
            }
            return {"id": id_, **letter, **reason}


def _mark(job: str, epoch: int, ids: Sequence[str]) -> pa.RecordBatch:
    """The letter that marks these as replayed."""
    letter: dict[str, Any] = dict.fromkeys(LETTERS.names)
    letter |= {"job": job, "sink": "", "epoch": epoch, "at": datetime.now(UTC), "code": REPLAYED}
    letter |= {"message": f"{len(ids)} letters were written again.", "schema": ""}
    letter["row"] = json.dumps(list(ids))
    return pa.RecordBatch.from_pylist([letter], schema=LETTERS)


def _attempt() -> str:
    return secrets.token_hex(8)
