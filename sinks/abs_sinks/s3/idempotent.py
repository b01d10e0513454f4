"""Protocol idempotent: objects are put at once, under names of their attempt.

One compare-and-set of the register lists the epoch's manifest, which commits them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from abs_clients.s3.objects import MAX_CELL_BYTES, Objects
from abs_core.aborting import abort_each
from abs_core.births import rules as births
from abs_core.contracts import Committer, Conflict, Version
from abs_core.crash import CrashPoint, reached
from abs_core.errors import FencedError, NotPreparedError
from abs_core.model import (
    Committable,
    HandleName,
    InDoubt,
    Inspection,
    JobState,
    Outcome,
    Shown,
)
from abs_core.routing import none_to_commit
from abs_sinks.s3 import lookback
from abs_sinks.s3.layout import PerHandle
from abs_sinks.s3.manifests import CommittedFile, Manifests
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.register import RegisterObject, S3Register, Seen
from abs_sinks.s3.twophase import digest_of, inspected
from abs_sinks.s3.upload_commit import PendingUploads
from abs_sinks.s3.uploads import Upload, Uploads, uploads_from_text, uploads_of, uploads_to_text
from abs_sinks.s3.writer import StreamingWriter

MARKERS = PerHandle("prepared", ".marker")


class Markers:
    """A marker for each handle that may have objects, in the state location of one sink.

        <state>/prepared/job=<job>/<handle>.marker

    It is put before the handle's first object, and deleted once its epoch is finished, so a sweep does
    not list the data.
    """

    def __init__(self, options: S3Options) -> None:
        self._options = options
        self._objects = Objects(options.bucket)
        self._uploads = Uploads(options)

    def put(self, handle: HandleName, uploads: Sequence[Upload]) -> None:
        """Put the handle's marker; its objects may exist from then on."""
        self._objects.put(self._key(handle), uploads_to_text(tuple(uploads)).encode())

    def delete(self, handles: Sequence[HandleName]) -> None:
        """Delete the markers of finished epochs."""
        self._objects.delete([self._key(handle) for handle in handles])

    def list(self, job: str | None) -> list[InDoubt]:
        """The marked handles of this job; None: of every job."""
        bucket = self._options.state.bucket
        return [
            InDoubt(handle, age, f"objects that s3://{bucket}/{listed.key} names")
            for handle, listed, age in MARKERS.of_job(self._options, job)
        ]

    def is_committed(self, handle: HandleName, committed: set[str]) -> bool:
        """Whether a manifest names the handle's objects."""
        return not committed.isdisjoint(upload.key for upload in self._named(handle))

    def size(self, handle: HandleName) -> int:
        """Bytes of the objects that the handle's marker names, existing or not."""
        return sum(upload.size for upload in self._named(handle))

    def undo(self, handle: HandleName, committed: set[str]) -> None:
        """Delete a handle's objects, unless they are committed, then its marker.

        Uploads are aborted first, so that a late Complete finds none.
        """
        uploads = self._named(handle)
        keys = [upload.key for upload in uploads]
        if not committed.intersection(keys):
            for upload in uploads:
                self._uploads.abort(upload.key, upload.upload_id)
            self._objects.delete(keys)
        self.delete([handle])

    def _named(self, handle: HandleName) -> tuple[Upload, ...]:
        key = self._key(handle)
        body = self._objects.get(key, MAX_CELL_BYTES)
        if body is None:
            return ()
        return uploads_from_text(body.data, f"s3://{self._options.state.bucket}/{key}", "it")

    def _key(self, handle: HandleName) -> str:
        return MARKERS.key(self._options, handle)


class IdempotentWriter(StreamingWriter):
    """Puts a marker for the sweep, then the objects."""

    def _complete(self) -> None:
        super()._complete()
        # Before the first object: a sweep does not list the data, and would not find one without
        # a marker.
        self._patience.retry(partial(Markers(self._options).put, self._handle, self._uploads))

    def _sealed(self) -> Committable:
        """See ``StreamingWriter``; ``FencedError`` if a newer run has swept the uploads."""
        pending = PendingUploads(self._options)
        for upload in self._uploads:
            outcome = self._patience.retry(partial(pending.complete, self._handle, upload))
            if outcome is not Outcome.COMMITTED:
                raise FencedError(
                    "An upload was ended while its task was at work: a newer run has swept it.",
                    handle=str(self._handle),
                    remedy="none, if the job was restarted.",
                )
        # The objects exist: their parts are not needed any more.
        lean = tuple(replace(upload, etags=(), crcs=()) for upload in self._uploads)
        extra = (("protocol", "idempotent"), ("uploads", uploads_to_text(lean)))
        return Committable(self._handle, self._rows, digest_of(self._uploads), extra)


class IdempotentCommitter(Committer):
    """It co-commits: objects exist since pre-commit, and the register's list commits them.

    Args:
        seen: what the sink's registers have seen: ``abort`` does not go by an older one.
        sized: as for ``TwoPhaseCommitter``.
        orphans: whether ``abort`` takes handles of a job that has no register, and had none when the
            process looked; for commands, where a person has named them.
    """

    co_commits = True

    def __init__(
        self,
        options: S3Options,
        seen: Seen | None = None,
        *,
        sized: bool = False,
        orphans: bool = False,
    ) -> None:
        self._options = options
        self._sized = sized
        self._orphans = orphans
        self._pending = PendingUploads(options)
        self._register = S3Register(options, seen)
        self._markers = Markers(options)

    def co_commit(
        self, committables: Sequence[Committable], expected: Version | None, state: JobState
    ) -> Version | Conflict:
        """See ``Committer``.

        Raises:
            NotPreparedError: an object is missing, or has other content than was sent.
        """
        stored = self._register.cell(state.job)
        # The version first: if a newer run has swept the objects, the error is that it fenced this one.
        if stored is None or stored[1] != expected:
            return Conflict()
        self._require_all(committables)
        manifests = Manifests(self._options, state.job)
        files = [
            CommittedFile(upload.key, upload.size, upload.crc)
            for committable in committables
            for upload in uploads_of(committable)
        ]
        before = stored[0].manifests
        epochs = [c.handle.epoch for c in committables] or [0]
        listed = manifests.add(before, state, max(epochs), files, min(epochs))
        reached(CrashPoint.INSIDE_CO_COMMIT)
        # After a conflict the manifests may be listed, by a first copy of a repeated request. They are
        # left to ``forget``.
        return self._register.swap(state.job, expected, state, listed)

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        return inspected(committables, self._inspect)

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        """Raise ``ProtocolError`` if objects are given: only ``co_commit`` commits them."""
        return none_to_commit(
            committables,
            "A decision names objects of protocol=idempotent, which only the register's list of "
            "manifests commits.",
            "restart the query: its epoch is written again.",
        )

    def abort(self, handles: Sequence[HandleName]) -> None:
        """See ``Committer``.

        Raises:
            RegisterLostError: the register, which tells what is committed, was lost; nothing is
                deleted.
        """
        marked = {doubt.handle for doubt in self._markers.list(None)}
        # The register is read for each handle, after the marks: what a manifest names by then is
        # not deleted (I4).
        mine = [handle for handle in handles if handle in marked]
        abort_each(mine, lambda handle: self._markers.undo(handle, self._kept(handle)))

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        # A killed run leaves markers of what is committed. Commands show them; a sweep would tell them
        # as aborted.
        marked = self._markers.list(job)
        if self._sized:
            return [self._measured(doubt) for doubt in marked]
        return [doubt for doubt in marked if not self._is_listed(doubt.handle)]

    def forget(self, state: JobState) -> None:
        """Delete the markers of committed handles, and manifests that were folded or never listed."""
        manifests = Manifests(self._options, state.job)
        # Manifests are listed before the register is read: what it lacks then it will never list.
        names, marked = manifests.all(), self._markers.list(state.job)
        stored = self._register.cell(state.job)
        if stored is None:
            return
        manifests.forget(names, stored[0])
        committed = {
            epoch: manifests.names_of(stored[0].manifests, epoch)
            for epoch in {doubt.handle.epoch for doubt in marked}
        }
        self._markers.delete(
            [
                doubt.handle
                for doubt in marked
                if self._markers.is_committed(doubt.handle, committed[doubt.handle.epoch])
            ]
        )

    def shown(self, committables: Sequence[Committable]) -> Sequence[Shown]:
        """See ``Committer``. The objects are there since they were pre-committed."""
        return lookback.shown(committables)

    def _inspect(self, committable: Committable) -> Outcome:
        """Prepared if all its objects are there with the content that was sent."""
        uploads = uploads_of(committable)
        there = all(self._pending.is_there(committable.handle, u) for u in uploads)
        return Outcome.PREPARED if there and uploads else Outcome.UNKNOWN

    def _measured(self, marked: InDoubt) -> InDoubt:
        """The marker with the size of its objects; 0 if they are committed."""
        if self._is_listed(marked.handle):
            return replace(marked, size=0, detail=f"a marker only; committed: {marked.detail}")
        return replace(marked, size=self._markers.size(marked.handle))

    def _is_listed(self, handle: HandleName) -> bool:
        """Whether the register lists the handle's objects: they are committed."""
        stored = self._register.cell(handle.job)
        committed = self._committed(None if stored is None else stored[0], handle)
        return self._markers.is_committed(handle, committed)

    def _kept(self, handle: HandleName) -> set[str]:
        """The committed keys of the handle's epoch, by a register that is proven to be the newest."""
        cell = self._register.present(handle.job)
        if cell is None and not self._orphans:
            why, place = "is missing", self._register.place(handle.job)
            raise births.lost_error(handle.job, why, place)
        return self._committed(cell, handle)

    def _committed(self, cell: RegisterObject | None, handle: HandleName) -> set[str]:
        """The keys of the handle's epoch that the register lists."""
        if cell is None:
            return set()
        return Manifests(self._options, handle.job).names_of(cell.manifests, handle.epoch)

    def _require_all(self, committables: Sequence[Committable]) -> None:
        seen = self.inspect(committables)
        for committable in committables:
            outcome = seen[committable.handle].outcome
            if outcome is not Outcome.PREPARED:
                raise NotPreparedError(
                    f"The objects of a handle are {outcome} before its epoch is decided.",
                    handle=committable.handle,
                    remedy="restart the query: the epoch is written again.",
                )
