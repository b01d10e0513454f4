"""Protocol 2pc: one multipart upload per file, left open until Complete makes it an object."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import TypeVar

from abs_core.aborting import abort_each
from abs_core.contracts import Committer
from abs_core.crash import CrashPoint, reached
from abs_core.lookback import LookedBack, Past
from abs_core.model import (
    Committable,
    HandleName,
    InDoubt,
    Inspection,
    JobState,
    Outcome,
    Shown,
)
from abs_sinks.s3 import lookback
from abs_sinks.s3.layout import handle_of
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.segments import SEGMENTS
from abs_sinks.s3.store import BucketStore, Store
from abs_sinks.s3.uploads import Pending, Upload, uploads_of, uploads_to_text
from abs_sinks.s3.writer import StreamingWriter

MANY_HANDLES = 4
"""Number of handles from which several threads act on them."""

THREADS = 16

T = TypeVar("T")


class TwoPhaseWriter(StreamingWriter):
    """Leaves uploads open with every part acknowledged.

    They are invisible to readers, and stay until they are completed or aborted, or a lifecycle rule of
    the bucket removes them (preflight reads those).
    """

    def _sealed(self) -> Committable:
        return committable(self._handle, self._rows, self._uploads)


class TwoPhaseCommitter(Committer):
    """A ``Committer`` for open uploads. A handle's files appear one by one, each whole.

    It aborts open uploads of every kind: also that of a segment larger than a part.

    Args:
        sized: whether ``in_doubt`` tells sizes, by one request per upload; not for a sweep.
        store: where the files are; default: the bucket of the options.
    """

    def __init__(
        self, options: S3Options, *, sized: bool = False, store: Store | None = None
    ) -> None:
        self._options = options
        self._sized = sized
        self._store = BucketStore(options) if store is None else store

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        return inspected(committables, self._inspect)

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        if len(committables) >= MANY_HANDLES:
            results = _each(committables, self._commit)
            return {c.handle: o for c, o in zip(committables, results, strict=True)}
        outcomes: dict[HandleName, Outcome] = {}
        for committable in committables:
            if outcomes:
                reached(CrashPoint.BETWEEN_COMMITS)
            outcomes[committable.handle] = self._commit(committable)
        return outcomes

    def abort(self, handles: Sequence[HandleName]) -> None:
        pending = self._by_owner()
        abort_each([h for h in handles if h in pending], lambda h: self._abort(pending[h]))

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        by_owner = self._by_owner().items()
        return [
            self._doubt(owner, uploads) for owner, uploads in by_owner if job in (None, owner.job)
        ]

    def forget(self, state: JobState) -> None:
        """Nothing: the object itself is the proof of its commit."""

    def shown(self, committables: Sequence[Committable]) -> Sequence[Shown]:
        return lookback.shown(committables)

    def look_back(self, past: Past) -> Sequence[LookedBack]:
        return lookback.look_back(self._options, past)

    def _abort(self, open_uploads: Sequence[Pending]) -> None:
        for number, pending in enumerate(open_uploads):
            if number:
                reached(CrashPoint.BETWEEN_ABORTS)
            self._store.abort(pending.key, pending.upload_id)

    def _inspect(self, committable: Committable) -> Outcome:
        """Prepared if a file still is, and none is lost."""
        uploads = uploads_of(committable)
        return _together({self._store.inspect(committable.handle, u) for u in uploads})

    def _commit(self, committable: Committable) -> Outcome:
        outcomes: set[Outcome] = set()
        for upload in uploads_of(committable):
            if outcomes:
                reached(CrashPoint.BETWEEN_COMMITS)
            # Even if one is lost, the others are committed.
            outcomes.add(self._store.complete(committable.handle, upload))
        return _together(outcomes)

    def _doubt(self, handle: HandleName, uploads: Sequence[Pending]) -> InDoubt:
        ages = [pending.age_seconds for pending in uploads if pending.age_seconds is not None]
        more = f" and {len(uploads) - 1} more" if len(uploads) > 1 else ""
        size = sum(self._size(pending) for pending in uploads) if self._sized else None
        detail = f"{self._store.described(uploads[0])}{more}"
        return InDoubt(handle, max(ages, default=None), detail, size)

    def _size(self, pending: Pending) -> int:
        """Bytes of the parts; 0 for an upload that has gone meanwhile."""
        parts = self._store.parts(pending.key, pending.upload_id)
        return sum((parts or {}).values())

    def _by_owner(self) -> dict[HandleName, list[Pending]]:
        """The open uploads of each handle: of data files, and of segments larger than a part."""
        path, dead = self._options.path.folder, self._options.letters
        others = (self._options.state.folder, *((dead.folder,) if dead else ()))
        uploads: dict[HandleName, list[Pending]] = defaultdict(list)
        for folder in (path, *(other for other in others if not other.startswith(path))):
            for pending in self._store.list(folder):
                owner = handle_of(pending.key) or SEGMENTS.handle_of(pending.key)
                if owner is not None:
                    uploads[owner].append(pending)
        return uploads


def committable(handle: HandleName, rows: int, uploads: Sequence[Upload]) -> Committable:
    """The committable of these uploads."""
    extra = (("protocol", "2pc"), ("uploads", uploads_to_text(tuple(uploads))))
    return Committable(handle, rows, digest_of(uploads), extra)


def digest_of(uploads: Sequence[Upload]) -> str:
    """A digest of the files' checksums, in order of their keys."""
    lines = sorted(f"{upload.key} {upload.size} {upload.crc}" for upload in uploads)
    return f"sha256:{sha256(chr(10).join(lines).encode()).hexdigest()}"


def inspected(
    committables: Sequence[Committable], outcome_of: Callable[[Committable], Outcome]
) -> dict[HandleName, Inspection]:
    """Inspect each committable, in threads if there are many. Nothing expires on its own."""
    results = _each(committables, outcome_of)
    return {c.handle: Inspection(o) for c, o in zip(committables, results, strict=True)}


def _together(outcomes: set[Outcome]) -> Outcome:
    # A handle is as good as its worst file: none is left out in silence (I7).
    worst = (Outcome.UNKNOWN, Outcome.ABORTED, Outcome.PREPARED, Outcome.COMMITTED)
    return next((outcome for outcome in worst if outcome in outcomes), Outcome.UNKNOWN)  # no file


def _each(committables: Sequence[Committable], call: Callable[[Committable], T]) -> list[T]:
    if len(committables) < MANY_HANDLES:
        return [call(committable) for committable in committables]
    with ThreadPoolExecutor(min(THREADS, len(committables))) as pool:
        return list(pool.map(call, committables))
