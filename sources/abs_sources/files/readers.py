"""Reads splits: a sequence of pieces, or a share of all files of a log without an end."""

from __future__ import annotations

import json
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa

from abs_core.errors import CorruptionError
from abs_core.source import Reader, Split
from abs_core.strictjson import Fields, fields, of, parse, text, whole
from abs_sources.files.columnar import Progress
from abs_sources.files.consent import is_given_up, naming_ways_out
from abs_sources.files.formats import FileReader
from abs_sources.files.model import Piece, Pin, Store, pin_from_json
from abs_sources.files.options import FileOptions

NOTHING = '{"at": null, "pieces": []}'
"""The position at the end of a split: no pieces are left."""


def split_of(pieces: Sequence[Piece], store: Store, log: str | None) -> Split:
    """A split of these pieces of files in the stream's log of this id."""
    more = f" and {len(pieces) - 1} more" if len(pieces) > 1 else ""
    where = f" [{pieces[0].start}:{pieces[0].end}]"
    return Split(
        f"{store.name(pieces[0].pin.path)}{where}{more}", _rest(pieces, None, log), NOTHING
    )


class _FilesReader(Reader):
    """The base of readers that have one file open at a time."""

    def __init__(self, options: FileOptions, store: Store, schema: pa.Schema, split: Split) -> None:
        self._log = log_of(split)
        self._open = partial(FileReader, options, store, self._log, schema)
        self._split = split
        self._current: FileReader | None = None

    def close(self) -> None:
        if self._current is not None:
            self._current.close()
            self._current = None


class PiecesReader(_FilesReader):
    """Reads the pieces of a split in order."""

    def __init__(self, options: FileOptions, store: Store, schema: pa.Schema, split: Split) -> None:
        super().__init__(options, store, schema, split)
        self._at, self._pieces = _pieces(split)

    @property
    def position(self) -> Split:
        return Split(self._split.source, _rest(self._pieces, self._at, self._log), self._split.end)

    @property
    def finished(self) -> bool:
        return not self._pieces

    def read(self, timeout_seconds: float) -> pa.RecordBatch | None:
        while self._pieces:
            if self._current is None:
                self._current = self._open(self._pieces[0], self._at)
            batch = self._current.read()
            if batch is not None:
                self._at = self._current.at
                return batch
            self.close()
            del self._pieces[0]
            self._at = None
        return None


class EndlessReader(_FilesReader):
    """Reads a share of all files of a log, and waits for new ones.

    Args:
        look: appends new files to the log and returns its files from a number on.
    """

    def __init__(
        self,
        options: FileOptions,
        store: Store,
        schema: pa.Schema,
        split: Split,
        look: Callable[[int, bool], Sequence[Pin]],
    ) -> None:
        super().__init__(options, store, schema, split)
        self._poll = options.poll_seconds
        self._place: dict[str, Any] = {**_endless(split)}
        self._look = look
        self._ahead: deque[Pin] = deque()
        self._next_look = 0.0

    @property
    def position(self) -> Split:
        return Split(self._split.source, json.dumps(self._place, sort_keys=True), None)

    @property
    def finished(self) -> bool:
        return False

    def read(self, timeout_seconds: float) -> pa.RecordBatch | None:
        give_up = time.monotonic() + timeout_seconds
        while True:
            if self._current is not None or self._begin():
                assert self._current is not None
                batch = self._current.read()
                if batch is not None:
                    self._place["at"] = self._current.at
                    return batch
                self._pass()
            elif not self._wait(give_up):
                return None

    def _begin(self) -> bool:
        """Open the next known file of this share."""
        number, of = self._place["share"]
        while self._ahead:
            pin = self._ahead[0]
            if zlib.crc32(pin.path.encode()) % of == number and not is_given_up(pin):
                self._current = self._open(Piece(pin, 0, pin.size), self._place["at"])
                return True
            self._pass()
        return False

    def _pass(self) -> None:
        self.close()
        self._ahead.popleft()
        self._place["files"] += 1
        self._place["at"] = None

    def _wait(self, give_up: float) -> bool:
        """Look for more files; False after the deadline."""
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + self._poll
            self._ahead = deque(self._look(self._place["files"], self._place["at"] is None))
            return bool(self._ahead) or now < give_up
        if now >= give_up:
            return False
        time.sleep(min(self._next_look, give_up) - now)
        return True


def endless_split(store: Store, log: str, files: int, number: int, of: int) -> Split:
    """One of ``of`` shares of all files from a number on."""
    place = {"at": None, "files": files, "log": log, "share": [number, of]}
    name = f"{store.name('')} share {number + 1} of {of}"
    return Split(name, json.dumps(place, sort_keys=True), None)


def endless_places(splits: Sequence[Split]) -> list[int]:
    """The number of the next file of each share; empty unless all shares of one log are there."""
    places = [_endless(split) for split in splits if split.end is None]
    shares = sorted(tuple(place["share"]) for place in places)
    complete = len(places) == len(splits) and shares == [
        (n, len(places)) for n in range(len(places))
    ]
    return [place["files"] for place in places] if complete else []


def log_of(split: Split) -> str | None:
    """The id of the stream's log; None for a batch read, and in a split of an older release."""
    with _read_as(split):
        log = fields(parse(split.start)).get("log")
        return None if log is None else text(log)


def check_first(store: Store, split: Split) -> None:
    """Raise ReplayMismatchError, with its ways out, if the first file is gone or has changed."""
    at, pieces = _pieces(split)
    for piece in pieces[:1]:
        with naming_ways_out(log_of(split), store, piece.pin, begun=at is not None):
            store.open(piece.pin).close()


def _rest(pieces: Sequence[Piece], at: Progress, log: str | None) -> str:
    listed = [[list(piece.pin), piece.start, piece.end] for piece in pieces]
    named = {"log": log} if log and pieces else {}
    return json.dumps({"at": at, "pieces": listed, **named}, sort_keys=True)


def _pieces(split: Split) -> tuple[Progress, list[Piece]]:
    """The progress in the first piece of a split, and all remaining pieces."""
    with _read_as(split):
        rest = fields(parse(split.start))
        listed = [of(list, one) for one in of(list, rest["pieces"])]
        return _progress(rest["at"]), [
            Piece(pin_from_json(pin), whole(start), whole(end)) for pin, start, end in listed
        ]


def _endless(split: Split) -> Fields:
    """The fields of an endless split."""
    with _read_as(split):
        place = fields(parse(split.start))
        number, shares = of(list, place["share"])
        whole(place["files"])
        text(place["log"])
        whole(number, 0, whole(shares, 1) - 1)
        _progress(place["at"])
        return place


def _progress(value: object) -> Progress:
    if value is None:
        return None
    if isinstance(value, list):
        first, skip = value
        return [whole(first), whole(skip)]
    return whole(value)


@contextmanager
def _read_as(split: Split) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise CorruptionError(
            f"{split.source}: the start position is damaged, because {error}: "
            f"{split.start[:80]!a}.",
            remedy="restart from the last intact checkpoint.",
        ) from error
