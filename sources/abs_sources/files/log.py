"""The log of a file source: all files that were ever taken, in the order of taking.

An engine stores offsets, which should be small. So a file source has a log of its own, and its
offset is the number of files before a position in this log. As in a topic's partition, a range of
numbers is always the same files: after a restart, for a second driver on a copy of the checkpoint,
and for a zombie.

**Entries.** ``entry-<n>-<first>`` lists the files of one look, each pinned by size and stamp;
``first`` is the number of its first file. An entry is put if absent and durable *before* an offset
refers to it. Of two processes that make the same entry one wins; the other reads it and looks
again. So no file is in the log twice, and none is left out.

**Folds.** ``fold-<n>`` holds path and stamp of all files up to entry n, compressed. A new process
reads one fold and the entries after it. A fold is made when the entries since the last one are
many, or hold many files: each file is written into few folds.

**Forgetting.** An entry is deleted when it is folded, all of its files are committed, and ``KEPT``
newer ones exist: so far an engine's checkpoint can be rolled back by hand. Paths are never
forgotten, because a file that is deleted and comes again under its name would be read twice. So the
folded log, and the memory of its users, grow with the number of files (some tens of bytes on disk
and some hundreds in memory each); offsets, entries and the work per epoch do not.

**Consents.** ``consent-<file>-<n>`` says that the file of this number was given up or pinned anew, by
whom and when (``consent``); the last one of a file counts. They are never deleted.

A late append could succeed after its entry was folded and deleted. So the folds are read after an
append: an entry that a fold covers does not count, for no process reads it before that fold.
"""

from __future__ import annotations

import bisect
import io
import json
import logging
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from threading import Lock

import pyarrow as pa
import pyarrow.parquet as pq

from abs_core.errors import (
    CorruptionError,
    IdentityError,
    RefusedError,
    ReplayMismatchError,
    UnavailableError,
)
from abs_core.strictjson import (
    NEWER,
    Fields,
    NewerVersionError,
    decimal,
    fields,
    of,
    parse,
    text,
    version,
)
from abs_sources.files.cells import WriteOnceStore
from abs_sources.files.consent import record, recorded
from abs_sources.files.model import Pin, pin_from_json

KEPT = 100
"""Entries that are kept after they were folded and committed; Spark keeps as many epochs."""
_FOLD_AFTER, _FOLD_ANYWAY = 100, 1000
"""Entries after which to fold: where their files are an eighth of all, and in any case."""
PER_ENTRY = 10_000
"""Files in one entry, at most."""
log = logging.getLogger(__name__)

_HEAD = "log.json"
VERSION = 1
_TRIES = 20


class SeenLog:
    """One process's view of a log. Not thread-safe: threads that share it take ``lock``.

    Args:
        cells: its storage.
        root: the source's root; a log of another one is refused.

    Attributes:
        seen: stamp of each file that was ever taken, by path.
        total: number of files, as of the last ``refresh`` or ``append``.
    """

    def __init__(self, cells: WriteOnceStore, root: str) -> None:
        self.lock = Lock()
        self._cells = cells
        self._root = root
        self.seen: dict[str, str] = {}
        self.total = 0
        self._last = -1
        self._folded = (-1, 0)
        self._firsts: dict[int, int] = {}
        self._pins: dict[int, Sequence[Pin]] = {}
        self._consents: dict[str, Pin] = {}

    def __reduce__(self) -> tuple[type[SeenLog], tuple[WriteOnceStore, str]]:
        """Another process has a view of its own."""
        return SeenLog, (self._cells, self._root)

    def refresh(self) -> None:
        """Read what others have appended.

        Raises:
            CorruptionError: the log is damaged.
            UnavailableError, RefusedError: it cannot be read.
        """
        for _ in range(_TRIES):
            if self._read(self._cells.names()):
                return
        raise UnavailableError(
            f"The log at {self._cells.place} is compacted faster than it can be read.",
            remedy="make sure that only one query uses it.",
        )

    def append(self, pins: Sequence[Pin]) -> bool:
        """Append these files; durable on return. Raises as ``refresh``.

        At most ``PER_ENTRY``, none of them in ``seen``. False: another process appended first; its
        files are known now, and the caller looks again.
        """
        number, first = self._last + 1, self.total
        text = json.dumps({"by": secrets.token_hex(8), "files": pins}, separators=(",", ":"))
        won = self._cells.put_new(_entry(number, first), text.encode())
        names = self._cells.names()
        newest = _newest_fold(names)
        if not won or number <= newest:
            if won and number <= newest - KEPT:  # it stands where one was that is forgotten
                self._cells.delete([_entry(number, first)])
            self.refresh()
            return False
        self._take(number, first, pins)
        if self._last - self._folded[0] >= 2 * _FOLD_ANYWAY:  # for who never says committed
            self.fold()
        return True

    def files(self, start: int, end: int) -> Sequence[Pin]:
        """The files with numbers from ``start`` up to, excluding, ``end``.

        Raises ReplayMismatchError if the log does not list them any more, or not yet;
        CorruptionError.
        """
        if start == end:
            return []
        numbers = sorted(self._firsts)
        firsts = [self._firsts[number] for number in numbers]
        at = bisect.bisect_right(firsts, start) - 1
        if at < 0 or not start < end <= self.total:
            raise ReplayMismatchError(
                f"The log at {self._cells.place} has the files number "
                f"{firsts[0] if firsts else self.total} to {self.total}, but {start} to {end} "
                "were requested.",
                remedy="the checkpoint is older or newer than the log: restore both from the "
                "same time. A query that starts anew needs a new folder for its log, too.",
            )
        files: list[Pin] = []
        for number in numbers[at:]:
            if self._firsts[number] >= end:
                break
            pins, first = self._entry(number), self._firsts[number]
            files += pins[max(0, start - first) : end - first]
        now = {_number(name): pin for name, pin in self._consents.items()}  # the last one counts
        return [now.get(number, pin) for number, pin in enumerate(files, start)]

    @property
    def oldest(self) -> int:
        """The number of the oldest file that ``files`` still gives."""
        return min(self._firsts.values(), default=self.total)

    def settle(self, number: int, pin: Pin, now: Pin, token: str) -> None:
        """Record a consent: the file of this number counts as ``now``. Durable on return."""
        nth = sum(1 for name in self._consents if _number(name) == number)
        name = f"consent-{number:012d}-{nth:06d}"
        if self._cells.put_new(name, record(token, pin, now)):  # else another process has
            log.warning("%s: consent %s: %s counts as %s", self._cells.place, token, pin, now)
        self.refresh()

    def committed(self, end: int) -> None:
        """Note that all files before this number are committed; fold and forget if due.

        Raises UnavailableError or RefusedError without a loss.
        """
        entries, files = self._last - self._folded[0], self.total - self._folded[1]
        many = entries >= _FOLD_AFTER and 8 * files >= self._folded[1]
        if entries < _FOLD_ANYWAY and not many:
            return
        self.refresh()
        self.fold()
        names = self._cells.names()
        newest = _newest_fold(names)
        old = [name for name in names if name.startswith("fold-") and _number(name) < newest]
        ends = dict(zip(sorted(self._firsts), sorted(self._firsts.values())[1:], strict=False))
        for number, first in self._firsts.items():
            if number <= newest - KEPT and ends.get(number, self.total) <= end:
                old.append(_entry(number, first))
        self._cells.delete(old)
        self._read(self._cells.names())

    def fold(self) -> None:
        """Write all that is seen into one cell; concurrent folds write the same content.

        Raises UnavailableError or RefusedError without a loss.
        """
        table = pa.table({"path": [*self.seen], "stamp": [*self.seen.values()]})
        table = table.replace_schema_metadata({"files": str(self.total)})
        content = io.BytesIO()
        pq.write_table(table, content, compression="zstd")
        self._cells.put_new(f"fold-{self._last:012d}", content.getvalue())
        self._folded = (self._last, self.total)

    @cached_property
    def id(self) -> str:
        """Id of this log; a recreated log has another.

        Raises IdentityError if it is the log of other files, RefusedError if the storage cannot
        keep it.
        """
        content = self._cells.get(_HEAD)
        if content is None:
            mine = {"id": secrets.token_hex(8), "root": self._root, "version": VERSION}
            if self._cells.put_new(_HEAD, json.dumps(mine).encode()):
                self._prove(mine["id"])
            content = self._cells.get(_HEAD) or b""
        head = self._parsed(_HEAD, content)
        try:
            version(head["version"], VERSION)
            log_id = text(head["id"])
        except NewerVersionError as error:
            raise RefusedError(
                f"The log at {self._cells.place} cannot be read: {error}.", remedy=f"{NEWER}."
            ) from error
        except ValueError as error:
            raise self._damaged(_HEAD) from error
        if head.get("root") != self._root:
            raise IdentityError(
                f"The log at {self._cells.place} belongs to {head.get('root')}, not to "
                f"{self._root}.",
                remedy="give each query a log of its own; if the files were moved, keep their "
                "old name with a mount or a link.",
            )
        return log_id

    def _prove(self, mine: object) -> None:
        """Check that one of two writers wins on this server; otherwise no log can be kept there."""
        if self._cells.put_new(_HEAD, json.dumps({"id": f"not {mine}"}).encode()):
            self._cells.delete([_HEAD])
            raise RefusedError(
                f"{self._cells.place} cannot keep a log: it lets a second writer replace what a "
                "first one has put (If-None-Match is not honoured).",
                remedy="put the log elsewhere: the option log takes a folder that all drivers see, "
                "or another bucket.",
            )

    def _read(self, names: set[str]) -> bool:
        """Read the cells; False if they were folded meanwhile."""
        fold = _newest_fold(names)
        if fold > self._last and not self._load_fold(fold):
            return False
        entries = {_number(name): name for name in names if name.startswith("entry-")}
        kept = {number: int(name.rsplit("-", 1)[1]) for number, name in entries.items()}
        for number in sorted(number for number in entries if number > self._last):
            if number != self._last + 1 or kept[number] != self.total:
                raise CorruptionError(
                    f"The log at {self._cells.place} is damaged: {entries[number]} comes after "
                    f"entry {self._last} and {self.total} files.",
                    remedy="restore its folder from a backup; it says what was read.",
                )
            content = self._cells.get(entries[number])
            if content is None:
                return False
            self._take(number, kept[number], self._unpacked(entries[number], content))
        # Entries that are covered by the fold this view began with may count for nothing.
        self._firsts = {n: first for n, first in kept.items() if n <= self._last}
        self._pins = {n: pins for n, pins in self._pins.items() if n in self._firsts}
        for name in sorted(n for n in names - {*self._consents} if n.startswith("consent-")):
            with self._reading(name):
                pin = recorded(self._cells.get(name) or b"")
            self._consents[name] = pin
            self.seen[pin.path] = seen_as(pin)
        return True

    def _load_fold(self, number: int) -> bool:
        name = f"fold-{number:012d}"
        content = self._cells.get(name)
        if content is None:
            return False
        try:
            table = pq.read_table(pa.BufferReader(content))
            total = decimal(table.schema.metadata[b"files"].decode())
            paths, stamps = (table[column].to_pylist() for column in ("path", "stamp"))
            seen = {text(path): text(stamp) for path, stamp in zip(paths, stamps, strict=True)}
        except (pa.ArrowException, OSError, KeyError, ValueError, TypeError) as error:
            raise self._damaged(name) from error
        self.seen = seen
        self._last, self.total, self._folded = number, total, (number, total)
        self._pins, self._consents = {}, {}
        return True

    def _take(self, number: int, first: int, pins: Sequence[Pin]) -> None:
        self._last, self.total = number, first + len(pins)
        self._firsts[number] = first
        self._pins[number] = pins
        self.seen.update((pin.path, seen_as(pin)) for pin in pins)

    def _entry(self, number: int) -> Sequence[Pin]:
        if number not in self._pins:
            name = _entry(number, self._firsts[number])
            content = self._cells.get(name)
            if content is None:
                raise ReplayMismatchError(
                    f"The log at {self._cells.place} has lost {name}.",
                    remedy="make sure that only one query uses it, then restart from the "
                    "checkpoint.",
                )
            self._pins[number] = self._unpacked(name, content)
        return self._pins[number]

    def _unpacked(self, name: str, content: bytes) -> list[Pin]:
        with self._reading(name):
            return [pin_from_json(pin) for pin in of(list, self._parsed(name, content)["files"])]

    def _parsed(self, name: str, content: bytes) -> Fields:
        with self._reading(name):
            return fields(parse(content))

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise self._damaged(name) from error

    def _damaged(self, name: str) -> CorruptionError:
        return CorruptionError(
            f"{self._cells.place}/{name} is damaged.",
            remedy="restore the log's folder from a backup; it says what was read.",
        )


def seen_as(pin: Pin) -> str:
    """The permanent record of a file's content."""
    return f"{pin.size}:{pin.stamp}"


def _entry(number: int, first: int) -> str:
    return f"entry-{number:012d}-{first:012d}"


def _number(name: str) -> int:
    return int(name.split("-")[1])


def _newest_fold(names: set[str]) -> int:
    return max((_number(name) for name in names if name.startswith("fold-")), default=-1)
