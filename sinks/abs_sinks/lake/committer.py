"""Commits an epoch's files by one commit of the table, which its log proves.

All handles of an epoch and a sink are committed together. ``compose`` seals them: each committable then
says which others belong to it, so that a part of them is refused. The commit completes the files, looks
at each, and adds them all with a mark: an application (the register and the sink) and a version (of
generation and epoch). The log is the proof: load, look for the mark, commit from that very snapshot; on
a conflict or a lost reply load and look again. A commit is never simply repeated.
"""

from __future__ import annotations

import logging
from base64 import b64decode
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from urllib.parse import unquote

import pyarrow as pa
from tenacity import Retrying, retry_if_result, stop_after_attempt, wait_random_exponential

from abs_core.contracts import Committer
from abs_core.crash import CrashPoint, reached
from abs_core.errors import ContentionError, ProtocolError, RefusedError, SchemaError
from abs_core.lookback import EPOCHS, LookedBack, Past
from abs_core.model import (
    TOGETHER,
    Committable,
    HandleName,
    InDoubt,
    Inspection,
    JobState,
    Outcome,
    Shown,
)
from abs_core.strictjson import of, parse, reading, text, whole
from abs_sinks.lake import lookback
from abs_sinks.lake.fit import demanding, fit, unfit
from abs_sinks.lake.table import AddedFile, LakeTable, Mark, Snapshot
from abs_sinks.s3.partitions import NULL_FOLDER
from abs_sinks.s3.uploads import uploads_of

log = logging.getLogger(__name__)

FILES, TABLE = "files", "table"
"""Keys of a committable's ``extra``: what the log holds of each file, and the table's id."""

COLUMNS, ADDS = "columns", "adds"
"""Likewise: the schema of the files, and whether the commit adds columns that the table lacks."""

REQUIRED, LOCATION = "required", "location"
"""Likewise: the columns that had no NULL by the table's rule, and where the table had its files."""

_ALIKE = (COLUMNS, REQUIRED, LOCATION)
"""What a decision keeps once for all tasks with the same."""

TRIES = 20
"""Table commits before the engine's patience decides; each lost one was won by another writer."""


class LakeCommitter(Committer):
    """Commits the handles of an epoch and a sink as one.

    Args:
        folder: the prefix of the files' keys that is the table's folder.
        inner: of the files themselves.
    """

    composes = True
    whole = True

    def __init__(self, table: LakeTable, folder: str, inner: Committer) -> None:
        self._table = table
        self._folder = folder
        self._inner = inner
        self._logged: tuple[Mark | None, str | None] = None, None  # the last commit, and its place
        self._inspected: Snapshot | None = None

    def compose(self, committables: Sequence[Committable]) -> Sequence[Committable]:
        """Seal them: the same handles, each with the number and the digest of all.

        Their schema is kept once, so that a decision of many tasks stays small.

        Raises:
            SchemaError, RefusedError: the table does not take their files any more.
        """
        snapshot = self._table.load() if committables else None
        if snapshot is not None and all(snapshot.id == _table_of(c) for c in committables):
            for problem, remedy in snapshot.problems():
                raise SchemaError(problem, remedy=remedy)
            # Only before the decision: of what is decided, a commit asks for the fields by name.
            files = [file for one in committables for file in self._files(one)]
            if lost := snapshot.forgotten(files):
                raise SchemaError(
                    f"The table lost the partition fields {', '.join(lost)} while the epoch was "
                    "written. Nothing of it is decided.",
                    remedy="start the query again: the epoch is written again, as the table is then",
                )
            self._lacking(snapshot, committables, decided=False)
        seal, kept, composed = _seal_of(committables), set[tuple[str, ...]](), []
        for committable in committables:
            extra = {**dict(committable.extra), TOGETHER: seal}
            alike = tuple(extra.get(key, "") for key in _ALIKE)
            if alike in kept:
                extra = {key: value for key, value in extra.items() if key not in _ALIKE}
            kept.add(alike)
            composed.append(replace(committable, extra=tuple(sorted(extra.items()))))
        return composed

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        """See ``Committer``; the table must be the same one."""
        if not committables:
            return {}
        snapshot = self._inspected = self._table.load()
        files = self._inner.inspect(committables)
        inspections: dict[HandleName, Inspection] = {}
        for one in committables:
            inspection = files[one.handle]
            if snapshot is None or snapshot.id != _table_of(one):
                inspection = Inspection(Outcome.UNKNOWN)
            elif _is_in(snapshot, one):
                inspection = Inspection(Outcome.COMMITTED)
            elif inspection.outcome is Outcome.COMMITTED:
                inspection = Inspection(Outcome.PREPARED)  # its files are completed, no more
            inspections[one.handle] = inspection
        return inspections

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        """See ``Committer``. Where a file is lost, none of the epoch's is added: all are lost.

        Raises:
            ProtocolError: a part of an epoch's handles is given.
        """
        outcomes: dict[HandleName, Outcome] = {}
        for number, share in enumerate(_together(committables)):
            if number:
                reached(CrashPoint.BETWEEN_COMMITS)
            outcome = self._commit(share)
            outcomes |= dict.fromkeys((c.handle for c in share), outcome)
        return outcomes

    def abort(self, handles: Sequence[HandleName]) -> None:
        self._inner.abort(handles)

    def forsake(self, committables: Sequence[Committable]) -> None:
        """Mark the epoch in the log without its files: whoever would still add them finds the mark."""
        super().forsake(committables)
        for share in _together(committables):
            snapshot = self._looked(share)
            if not isinstance(snapshot, Outcome):
                self._added(share, snapshot, ())

    def shown(self, committables: Sequence[Committable]) -> Sequence[Shown]:
        """See ``Committer``: where in the log the epoch's commit is."""
        mark = mark_of(committables)
        added, place = self._logged
        if added != mark:  # another process has committed it, or the reply was lost
            snapshot = self._table.load()
            place = None if snapshot is None else snapshot.place_of(mark)
        return lookback.shown(committables, mark, place)

    def look_back(self, past: Past) -> Sequence[LookedBack]:
        # An epoch without files here was not inspected: what was seen before others is older than they.
        snapshot = self._inspected if past.own else self._table.load()
        return lookback.look_back(snapshot, past, EPOCHS)

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        return self._inner.in_doubt(job)

    def forget(self, state: JobState) -> None:
        """Nothing: the mark of the last epoch is the proof of all before it."""

    def _commit(self, share: Sequence[Committable]) -> Outcome:
        # The log first: of an epoch that is in it, files may have been compacted away since.
        snapshot = self._looked(share)
        if isinstance(snapshot, Outcome):
            return snapshot
        self._lacking(snapshot, share)
        # A second time: an answer may have been cut short.
        lost = self._completed(share) and self._completed(share)
        if lost:
            # Another coordinator may have committed them, and a clean-up removed compacted files.
            state = self._looked(share)
            if isinstance(state, Outcome):
                return state
            log.error("no file of the epoch is added to the table: those of %s are lost", lost[0])
            return Outcome.ABORTED
        reached(CrashPoint.BETWEEN_COMMITS)
        files = [file for one in sorted(share, key=lambda c: c.handle) for file in self._files(one)]
        return self._added(share, snapshot, files)

    def _completed(self, share: Sequence[Committable]) -> list[HandleName]:
        """Complete the files; the handles of those that are lost."""
        outcomes = self._inner.commit(share)
        return [c.handle for c in share if outcomes.get(c.handle) is not Outcome.COMMITTED]

    def _added(
        self, share: Sequence[Committable], first: Snapshot, files: Sequence[AddedFile]
    ) -> Outcome:
        """Add the files from the snapshot that was looked at; lost races look again."""
        snapshot: Snapshot | None = first

        def tried() -> Outcome | None:
            nonlocal snapshot
            current = self._looked(share) if snapshot is None else snapshot
            # Used for one try only: after a conflict or a lost reply the log may have the mark.
            snapshot = None
            if isinstance(current, Outcome):
                return current
            columns = self._lacking(current, share) if files else pa.schema([])
            mark = mark_of(share)
            if not current.add(files, mark, columns):
                return None
            self._logged = mark, current.place_of(mark)
            return Outcome.COMMITTED

        trying = Retrying(
            retry=retry_if_result(lambda outcome: outcome is None),
            wait=wait_random_exponential(multiplier=0.05, max=2.0),
            stop=stop_after_attempt(TRIES),
            retry_error_callback=lambda _: None,
        )
        outcome: Outcome | None = trying(tried)
        if outcome is None:
            raise ContentionError(
                f"The table was changed by others {TRIES} times while an epoch was committed.",
                handle=share[0].handle,
                remedy="let other writers, such as a compaction, commit less often.",
            )
        return outcome

    def _looked(self, share: Sequence[Committable]) -> Snapshot | Outcome:
        """The newest snapshot, if the epoch is not in it and it is the same table."""
        snapshot = self._table.load()
        if snapshot is None or snapshot.id != _table_of(share[0]):
            log.error("%s: the table was dropped or replaced after the decision", share[0].handle)
            return Outcome.UNKNOWN
        return Outcome.COMMITTED if _is_in(snapshot, share[0], mark_of(share)) else snapshot

    def _lacking(
        self, snapshot: Snapshot, share: Sequence[Committable], *, decided: bool = True
    ) -> pa.Schema:
        """The columns that a commit of these handles adds to the table, which they fit otherwise.

        What is decided fits a table that finds columns by ids, whatever it has become: readers see the
        files as those that were there before it changed.

        Raises:
            SchemaError: the table does not fit their files any more.
        """
        columns: dict[str, pa.Field] = {}
        _check_location(snapshot, share)
        for written, had, adds in dict.fromkeys(
            (extra[COLUMNS], extra.get(REQUIRED), ADDS in extra)
            for extra in map(dict[str, str], (c.extra for c in share))
            if COLUMNS in extra
        ):
            schema = pa.ipc.read_schema(pa.py_buffer(b64decode(written)))
            misfits = snapshot.misfits(schema)
            if misfits is None:
                self._check_layout(snapshot, share)
                fitted = fit(snapshot, schema, (), "add" if adds else "fail", in_files=True)
                _check_required(fitted.required, had)
                columns |= {field.name: field for field in fitted.added}
            elif not decided and (misfits := [*misfits, *demanding(snapshot.schema)]):
                raise unfit(misfits)
        return pa.schema(columns.values())

    def _check_layout(self, snapshot: Snapshot, share: Sequence[Committable]) -> None:
        """The folders of the files are the partition columns of the table as it was."""
        for one in share:
            for file in self._files(one):
                if tuple(file.values) != snapshot.partitions:
                    before, now = (
                        ", ".join(n) or "nothing" for n in (file.values, snapshot.partitions)
                    )
                    raise SchemaError(
                        f"The epoch's files are partitioned by {before}, and the table by {now} now.",
                        handle=one.handle,
                        remedy=f"partition the table by {before} again until the epoch is in it",
                    )

    def _files(self, committable: Committable) -> list[AddedFile]:
        uploads = uploads_of(committable)
        with reading("The files of a handle", "do not delete the register: restore it"):
            described = of(list, parse(dict(committable.extra)[FILES]))
            if len(described) != len(uploads):
                raise ValueError(
                    f"there are {len(uploads)} files, and {len(described)} are described"
                )
            rows = [(whole(of(list, one)[0]), text(one[1])) for one in described]
        return [
            AddedFile(path, upload.size, count, partition_values(path), stats)
            for upload, (count, stats) in zip(uploads, rows, strict=True)
            if (path := upload.key.removeprefix(self._folder))
        ]


def mark_of(share: Sequence[Committable]) -> Mark:
    """The mark of an epoch of a sink.

    The version orders all decisions of a register: by generation, which also grows when an adopted job
    begins its epochs anew, then by epoch. A decision of the embedded runtime may name handles of
    several epochs: the last one counts.

    Raises:
        RefusedError: the epoch is too large for a version.
    """
    last = max((c.handle for c in share), key=lambda handle: (handle.generation, handle.epoch))
    if last.epoch >= EPOCHS or last.generation >= EPOCHS // 2:
        raise RefusedError(
            "The epoch's number does not fit the version of a table's transaction.",
            handle=last,
            remedy="take a new checkpoint, whose epochs begin at 0, another job name, and a source "
            "that begins where this job ends.",
        )
    # Sinks of one epoch lie 2^24 partitions apart, those of an embedded job 2^16. Both are told apart
    # so, and for one decision the number is always the same.
    number = min(c.handle.partition for c in share) >> 16
    properties = {"abs.job": last.job, "abs.epoch": str(last.epoch)}
    return Mark(f"abs-{last.register}-{number}", last.generation * EPOCHS + last.epoch, properties)


def partition_values(path: str) -> dict[str, str | None]:
    """The values in the folders of a file's path, see ``partitions``."""
    pairs = (folder.partition("=") for folder in path.split("/")[:-1])
    return {unquote(n): None if value == NULL_FOLDER else unquote(value) for n, _, value in pairs}


def _check_location(snapshot: Snapshot, share: Sequence[Committable]) -> None:
    """The files are where the table has its own: the log would name others."""
    for one in share:
        before = dict(one.extra).get(LOCATION, snapshot.location)
        if before != snapshot.location:
            raise SchemaError(
                f"The epoch's files are below {before}, and the table is at {snapshot.location} now.",
                handle=one.handle,
                remedy=f"set the table's location to {before} again until the epoch is in it",
            )


def _check_required(required: Sequence[str], had: str | None) -> None:
    """No column must be without NULL now that could have one when its rows were checked.

    Args:
        had: those that could not, as JSON; None: a release that did not tell them.
    """
    if had is None:
        return
    with reading("The columns of a handle", "do not delete the register: restore it"):
        before = [text(name) for name in of(list, parse(had))]
    if more := [name for name in required if name not in before]:
        raise unfit([f"{name} must not be NULL in the table now" for name in more])


def _is_in(snapshot: Snapshot, one: Committable, mark: Mark | None = None) -> bool:
    """Whether the table's log has the mark of the epoch, or of a later one."""
    if mark is None:
        mark = mark_of([one])
    last = snapshot.version_of(mark.application)
    # A table's decisions are committed in their order: a later mark stands for this one.
    return last is not None and last >= mark.version


def _together(committables: Sequence[Committable]) -> list[list[Committable]]:
    """The handles of each epoch and sink.

    Raises:
        ProtocolError: a part of them is given.
    """
    shares: dict[str, list[Committable]] = defaultdict(list)
    for one in committables:
        shares[one.together].append(one)
    for seal, share in shares.items():
        if seal != _seal_of(share):
            raise _partial(share)
    return list(shares.values())


def _seal_of(share: Sequence[Committable]) -> str:
    names = sorted(str(committable.handle) for committable in share)
    return f"{len(names)}:{sha256(' '.join(names).encode()).hexdigest()}"


def _table_of(committable: Committable) -> str:
    return dict(committable.extra).get(TABLE, "")


def _partial(share: Sequence[Committable]) -> ProtocolError:
    return ProtocolError(
        f"{len(share)} handles are given, which are not all of their epoch and sink: a table takes all "
        "of them in one commit, or none.",
        handle=share[0].handle,
        remedy="commit the decision as a whole: `abs in-doubt commit JOB`.",
    )
