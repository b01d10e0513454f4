"""What the coordinator acts with: uploads that are completed on decision, or aborted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from abs_core.crash import CrashPoint, reached
from abs_core.model import Committable, HandleName, InDoubt, Inspection, JobState, Outcome
from abs_sinks.s3.layout import handle_of
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.pending import PendingUploads
from abs_sinks.s3.uploads import Pending, Upload, Uploads, uploads_from_text

MANY_HANDLES = 4
"""From so many on, handles are acted on by several threads."""

THREADS = 8

T = TypeVar("T")


class S3Committer:
    """A ``Committer`` for open uploads. A handle's files appear one by one, each at once."""

    def __init__(self, options: S3Options) -> None:
        self._options = options
        self._pending = PendingUploads(options)
        self._uploads = Uploads(options)

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        found = _each(committables, self._inspect)
        return {c.handle: Inspection(o) for c, o in zip(committables, found, strict=True)}

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        if len(committables) >= MANY_HANDLES:
            found = _each(committables, self._commit)
            return {c.handle: o for c, o in zip(committables, found, strict=True)}
        outcomes: dict[HandleName, Outcome] = {}
        for committable in committables:
            if outcomes:
                reached(CrashPoint.BETWEEN_COMMITS)
            outcomes[committable.handle] = self._commit(committable)
        return outcomes

    def abort(self, handles: Sequence[HandleName]) -> None:
        if not handles:
            return
        wanted = set(handles)
        aborted = 0
        for pending in self._list():
            if handle_of(pending.key) in wanted:
                if aborted:
                    reached(CrashPoint.BETWEEN_ABORTS)
                self._uploads.abort(pending.key, pending.upload_id)
                aborted += 1

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        """See ``Committer``; with None, of every job."""
        by_handle: dict[HandleName, list[Pending]] = defaultdict(list)
        for pending in self._list():
            handle = handle_of(pending.key)
            if handle is not None and job in (None, handle.job):
                by_handle[handle].append(pending)
        return [_doubt(self._options, handle, found) for handle, found in by_handle.items()]

    def forget(self, state: JobState) -> None:
        """Nothing: the object itself is the proof of its commit."""

    def _inspect(self, committable: Committable) -> Outcome:
        """Prepared where some of its files still are, and none is lost."""
        found = {self._pending.inspect(committable.handle, u) for u in uploads_of(committable)}
        return _together(found)

    def _commit(self, committable: Committable) -> Outcome:
        uploads = uploads_of(committable)
        # Also where one is lost: what can be committed is.
        return _together({self._pending.complete(committable.handle, u) for u in uploads})

    def _list(self) -> Iterable[Pending]:
        return self._uploads.list(self._options.path.folder)


def uploads_of(committable: Committable) -> tuple[Upload, ...]:
    """The uploads that a committable names; none where it names none."""
    return uploads_from_text(dict(committable.extra).get("uploads", "[]"))


def _together(outcomes: set[Outcome]) -> Outcome:
    for outcome in (Outcome.UNKNOWN, Outcome.ABORTED, Outcome.PREPARED, Outcome.COMMITTED):
        if outcome in outcomes:
            return outcome
    return Outcome.UNKNOWN  # no file at all


def _each(committables: Sequence[Committable], call: Callable[[Committable], T]) -> list[T]:
    if len(committables) < MANY_HANDLES:
        return [call(committable) for committable in committables]
    with ThreadPoolExecutor(min(THREADS, len(committables))) as pool:
        return list(pool.map(call, committables))


def _doubt(options: S3Options, handle: HandleName, found: Sequence[Pending]) -> InDoubt:
    ages = [pending.age_seconds for pending in found if pending.age_seconds is not None]
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    detail = f"upload {found[0].upload_id} of s3://{options.path.bucket}/{found[0].key}{more}"
    return InDoubt(handle, max(ages, default=None), detail)
