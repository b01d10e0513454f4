"""Files as a replayable source: a range is read again with the same content, or an error says why."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from abs_core.errors import ConfigError, ReplayMismatchError, SchemaError, UnavailableError
from abs_core.source import Limit, Offsets, Reader, Source, Split
from abs_core.strictjson import fields, parse, text, whole
from abs_sources.files.cells import WriteOnceMemory, WriteOnceStore
from abs_sources.files.consent import (
    given_up,
    is_given_up,
    naming_ways_out,
    to_give_up,
    to_pin_anew,
)
from abs_sources.files.formats import is_divisible, stored_schema
from abs_sources.files.log import PER_ENTRY, SeenLog, seen_as
from abs_sources.files.model import Found, Piece, Pin, Store, changed
from abs_sources.files.options import FileOptions
from abs_sources.files.readers import (
    EndlessReader,
    PiecesReader,
    check_first,
    endless_places,
    endless_split,
    log_of,
    split_of,
)

OPEN_COST = 4 << 20
"""What opening a file counts for, in bytes (``spark.sql.files.openCostInBytes``)."""


def pack(
    pins: Sequence[Pin], most: int, least_splits: int, divisible: Callable[[Pin], bool]
) -> list[tuple[Piece, ...]]:
    """Pack files into splits as Spark's scans do: small files together, a big file over several.

    A pure function: the same range is always cut in the same way. Returns the pieces of each split, in
    the order of the files.

    Args:
        most: approximate bytes of a split; an indivisible file may have more.
        least_splits: if there is enough to read.
        divisible: whether reading can begin in the middle of this file.
    """
    total = sum(pin.size + OPEN_COST for pin in pins)
    target = max(1, min(most, max(OPEN_COST, -(-total // least_splits))))
    splits: list[tuple[Piece, ...]] = []
    current: list[Piece] = []
    filled = 0
    for pin in pins:
        for piece in _pieces(pin, target if divisible(pin) else pin.size):
            cost = piece.end - piece.start + OPEN_COST
            if current and filled + cost > target:
                splits.append(tuple(current))
                current, filled = [], 0
            current.append(piece)
            filled += cost
    return [*splits, tuple(current)] if current else splits


def _pieces(pin: Pin, target: int) -> list[Piece]:
    if pin.size <= target:
        return [Piece(pin, 0, pin.size)]
    count = -(-pin.size // target)
    step = -(-pin.size // count)
    return [Piece(pin, start, min(start + step, pin.size)) for start in range(0, pin.size, step)]


_TRIES = 20


@dataclass(frozen=True, slots=True)
class _Closing:
    """The limits of a closed source: its number of files in the log, and the files that existed."""

    total: int
    paths: frozenset[str]


@dataclass(slots=True)
class _Taking:
    """Counts an epoch's files against its limit: takes the first always, none after a refused one."""

    limit: Limit
    files: int = 0
    bytes: int = 0

    @property
    def full(self) -> bool:
        most = self.limit
        return (most.files is not None and self.files >= most.files) or (
            most.bytes is not None and self.files > 0 and self.bytes >= most.bytes
        )

    def takes(self, pin: Pin) -> bool:
        """Take the file unless full; returns whether it was taken."""
        if self.full:
            return False
        self.files += 1
        self.bytes += pin.size
        return True


class FileSource(Source):
    """Files in a folder, a glob of folders, or a prefix of a bucket.

    Guarantees: a range of offsets always holds the same files, each with the content that it had
    when it was taken. A file is taken once, however late it appears and whatever its time is: the
    log of paths decides, not a time stamp. Files found at one look are taken in the order of
    modification time and name (newest first with ``latest_first``), before all files of a later
    look.

    A file that is gone or changed after it was taken raises ``ReplayMismatchError`` when it is
    read; a changed one also when files are listed. Not detected: another content with the same size
    and modification time (S3: ETag).

    Not guaranteed: that a file is complete. It is taken as soon as it is listed; let files appear
    whole (write elsewhere and rename; an S3 upload does so). A file that grows afterwards is an
    error.

    Offsets are ``{"files": n, "log": id}``, see ``SeenLog``; rows of a file are never in two
    epochs.

    Args:
        schema: of the batches; None: the first file's, for formats that have one.
        store: the place of the files, if not that of the options.
    """

    def __init__(
        self, options: FileOptions, schema: pa.Schema | None = None, store: Store | None = None
    ) -> None:
        if options.fileformat == "text" and schema is not None and not _is_text(schema):
            raise SchemaError(
                "Text files have one column of strings.", remedy='give the schema "value string".'
            )
        self._options = options
        self._store = store or options.store()
        self._schema = schema
        self._cells: WriteOnceStore = options.cells() or WriteOnceMemory()
        self._log = SeenLog(self._cells, options.path.name)
        self._closing: _Closing | None = None
        self._known = 0

    @property
    def schema(self) -> pa.Schema:
        """The given schema, or that of the oldest file now; raises SchemaError if it is unknown."""
        if self._schema is None:
            pins = [file.pin for file in sorted(self._store.find(), key=_age)[:1]]
            self._schema = stored_schema(self._options, self._store, pins)
        return self._schema

    def initial(self) -> Offsets:
        """Before the first file. Creates the log if it is missing.

        Raises IdentityError, RefusedError or UnavailableError if the log cannot be used.
        """
        return self._place(0)

    def latest(self, start: Offsets, limit: Limit) -> Offsets:
        """The position after as many files as the limit allows; they are in the log on return.

        Args:
            limit: ``files``, and ``bytes`` (at least one file is taken). Not ``rows``.

        Raises:
            ReplayMismatchError: ``start`` is of another log, or a taken file has changed.
            ConfigError: a limit of rows.
            AbsError: the files cannot be listed, or the log cannot be written.
        """
        if limit.rows is not None:
            raise ConfigError(
                "A file source cannot limit an epoch by rows.",
                remedy="use maxFilesPerTrigger or maxBytesPerTrigger.",
            )
        for _ in range(_TRIES):
            self._log.refresh()
            begin = self._number(start)
            self._settle(max(begin, self._log.oldest))
            taking, end = _Taking(limit), self._end(begin)
            if limit != Limit():
                # Without one it does not matter which they are, and the log need not name them still.
                end = begin + sum(1 for pin in self._log.files(begin, end) if taking.takes(pin))
            if taking.full or end < self._log.total:
                return self._place(end)
            new = [pin for pin in self._unseen(begin) if taking.takes(pin)]
            entries = (new[n : n + PER_ENTRY] for n in range(0, len(new), PER_ENTRY))
            if all(self._log.append(entry) for entry in entries):
                return self._place(end + len(new))
        raise UnavailableError(
            f"Other processes keep adding files to the log of {self._options.path.name}.",
            remedy="make sure that only one query uses this log.",
        )

    def splits(self, start: Offsets, end: Offsets | None) -> Sequence[Split]:
        """Splits of whole files or parts of big ones; without an end, shares of all future files.

        Raises ReplayMismatchError if the log does not list the files of this range any more.
        """
        self._log.refresh()
        begin = self._number(start)
        if end is None:
            count = self._options.readers
            return [
                endless_split(self._store, self._log.id, begin, number, count)
                for number in range(count)
            ]
        self._settle(begin)
        pins = [p for p in self._log.files(begin, self._number(end)) if not is_given_up(p)]
        groups = pack(
            pins,
            self._options.partition_bytes,
            self._options.partitions,
            lambda pin: is_divisible(self._options, self._store.name(pin.path)),
        )
        return [split_of(group, self._store, self._tokens_of) for group in groups]

    def open(self, split: Split) -> Reader:
        """A reader of this split. Needs no log if the split has an end."""
        if split.end is not None:
            if self._schema is None:  # looked for in what is there now, which may be nothing
                check_first(self._store, split)
            return PiecesReader(self._options, self._store, self.schema, split)
        if log_of(split) != self._log.id:
            raise self._other_log(str(log_of(split)))
        return EndlessReader(self._options, self._store, self.schema, split, self._look)

    def committed(self, end: Offsets) -> None:
        """Fold the log, and forget the plans of files long before ``end``, if due."""
        with self._log.lock:
            self._log.committed(self._number(end))

    def passed(self, left: Sequence[Split]) -> Offsets | None:
        """The first file that a share of an endless reading has not finished."""
        places = endless_places(left)
        return self._place(min(places)) if places else None

    def until_now(self) -> FileSource:
        """This source without later files; files in the log belong to it."""
        self._log.refresh()
        closed = FileSource(self._options, self._schema, self._store)
        paths = frozenset(file.pin.path for file in self._store.find())
        closed._cells = self._cells
        closed._log = SeenLog(self._cells, self._options.path.name)
        closed._closing = _Closing(self._log.total, paths)
        return closed

    def seen(self) -> Offsets | None:
        """The end of all files of the last ``latest``."""
        return self._place(max(self._known, self._log.total)) if self._known else None

    def _end(self, begin: int) -> int:
        """The number up to which files of the log may be read."""
        total = self._log.total
        if self._closing is None:
            return total
        end = max(begin, min(self._closing.total, total))
        if end < total:
            for pin in self._log.files(end, total):
                if pin.path not in self._closing.paths:
                    break
                end += 1
        return end

    @property
    def _tokens_of(self) -> str | None:
        """The id of the log, for tokens; None for a batch read, which has none to keep them."""
        return None if self._options.log is None else self._log.id

    def _settle(self, begin: int, *, begun: bool = False) -> None:
        """Record what the option ``adopt`` consents to of the files from ``begin`` on.

        Nothing of these is committed: an engine plans them now. Only of the first one some rows may be,
        if it is ``begun``.
        """
        if not self._options.adopt:
            return
        there = {file.pin.path: file.pin for file in self._store.find()}
        for number, pin in enumerate(self._log.files(begin, self._log.total), begin):
            ways = {to_give_up(self._log.id, pin): given_up(pin)}
            if pin.path in there and not (begun and number == begin):
                now = there[pin.path]
                ways[to_pin_anew(self._log.id, pin, now)] = now
            for token in self._options.adopt & ways.keys():
                self._log.settle(number, pin, ways[token], token)

    def _unseen(self, begin: int) -> list[Pin]:
        """Files that are in no entry of the log, in the order of taking; ``begin``: of the epoch."""
        files = self._store.find()
        seen, new = self._log.seen, []
        for file in files:
            then = seen.get(file.pin.path)
            if then is None:
                new.append(file)
            elif then not in (seen_as(file.pin), seen_as(given_up(file.pin))):
                self._refuse(file.pin, then, begin)
        self._known = self._log.total + len(new)
        if self._closing is not None:
            new = [file for file in new if file.pin.path in self._closing.paths]
        new.sort(key=_age, reverse=self._options.latest_first)
        return [file.pin for file in new]

    def _refuse(self, now: Pin, then: str, begin: int) -> None:
        """Raise ``ReplayMismatchError`` for a file that has changed, unless that is to be ignored."""
        if self._options.ignore_changed:
            return
        error = changed(self._store.name(now.path), then, seen_as(now))
        for pin in self._log.files(max(begin, self._log.oldest), self._log.total):
            if pin.path == now.path:  # taken, and not committed
                with naming_ways_out(self._tokens_of, self._store, pin, begun=False):
                    raise error
        error.remedy += " Or set changedFiles=ignore: what was read stays, the change is left out."
        raise error

    def _look(self, number: int, may_take: bool) -> Sequence[Pin]:
        """For an endless reader: the files from this number on, with new ones."""
        with self._log.lock:  # readers of one source are in several threads
            self._log.refresh()
            if may_take and self._log.total <= number:
                self.latest(self._place(number), Limit())
            self._settle(number, begun=not may_take)
            return self._log.files(number, self._log.total)

    def _place(self, files: int) -> Offsets:
        return json.dumps({"files": files, "log": self._log.id}, sort_keys=True)

    def _number(self, place: Offsets) -> int:
        try:
            value = fields(parse(place))
            log, number = text(value["log"]), whole(value["files"])
        except ValueError as error:
            raise ReplayMismatchError(
                f"These are not offsets of this source, because {error}: {place[:200]!a}",
                remedy="the checkpoint belongs to another source: use a new checkpoint.",
            ) from error
        if log != self._log.id:
            raise self._other_log(log)
        if number > self._log.total:
            self._log.refresh()
        if number > self._log.total:
            raise ReplayMismatchError(
                f"{number} files were taken from {self._options.path.name}, but its log at "
                f"{self._cells.place} has {self._log.total}.",
                remedy="the log is older than the checkpoint: restore both from the same time.",
            )
        return number

    def _other_log(self, other: str) -> ReplayMismatchError:
        return ReplayMismatchError(
            f"The checkpoint was made with log {other}, but the log at {self._cells.place} is "
            f"{self._log.id}.",
            remedy="restore the log that belongs to the checkpoint (option log). Without it, it "
            "is unknown which files were read; a query with a new checkpoint reads all of them.",
        )


def _age(file: Found) -> tuple[int, str]:
    return file.modified, file.pin.path


def _is_text(schema: pa.Schema) -> bool:
    return len(schema) == 1 and pa.types.is_string(schema.field(0).type)
