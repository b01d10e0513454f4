"""The S3 sink: a ``Sink`` for one folder of a bucket."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b

import pyarrow as pa

from abs_clients.s3.location import OURS
from abs_clients.s3.objects import Objects
from abs_core.contracts import Committer, Sink, Task, Writer
from abs_core.errors import AbsError, SchemaError
from abs_core.model import Finding, Guarantee, JobState
from abs_core.protocol import sweep
from abs_core.routing import ByProtocol
from abs_sinks.checking import CheckingWriter
from abs_sinks.deadletters.replay import AppendedLetters
from abs_sinks.deadletters.writer import dead_letters_of
from abs_sinks.s3.committed import committed_files
from abs_sinks.s3.formats import check_schema
from abs_sinks.s3.idempotent import IdempotentCommitter, IdempotentWriter
from abs_sinks.s3.options import S3Options, check_partitioning
from abs_sinks.s3.partitions import Partitioning
from abs_sinks.s3.preflight import preflight
from abs_sinks.s3.register import S3Register, Seen
from abs_sinks.s3.twophase import TwoPhaseCommitter, TwoPhaseWriter
from abs_sinks.s3.wal import WalCommitter, WalWriter

log = logging.getLogger(__name__)

_LISTED = (
    "no setting needed: every object in the folder is committed (names that begin with _ belong to "
    "the sink)"
)

_OPEN_UPLOADS = (
    "A lifecycle rule that aborts unfinished uploads must wait for longer than the job may be down."
)

_GUARANTEES = {
    "2pc": Guarantee(
        protocol="2pc",
        write="append",
        visibility="per file: when the epoch is committed, its files become visible one after "
        "another, each as a whole, within milliseconds",
        reader=_LISTED,
        limits=(_OPEN_UPLOADS,),
    ),
    "wal": Guarantee(
        protocol="wal",
        write="append",
        visibility="per file: when the epoch is committed, its few composed files become visible one "
        "after another, each as a whole, within milliseconds",
        reader=_LISTED,
        limits=(_OPEN_UPLOADS, "Every byte is written twice, and the driver reads it once."),
    ),
    "idempotent": Guarantee(
        protocol="idempotent",
        write="append",
        visibility="whole epoch, for readers that use the manifests; the folder also contains files "
        "of undecided epochs and of failed attempts",
        reader="use spark.read.format('abs-s3') or abs_sinks.s3.committed_files(): a reader that "
        "lists the folder also sees files that are not committed",
        limits=("Do not delete or rewrite files: readers find them through the manifests.",),
    ),
}


def guarantee(options: S3Options) -> Guarantee:
    """The guarantee that follows from the options."""
    promise = _GUARANTEES[options.protocol]
    if options.deadletter is None:
        return promise
    dead = dead_letters_of("folder", options)
    if options.protocol == "idempotent":
        dead += (
            " That folder also has files of undecided epochs: `abs deadletters` leaves them out."
        )
    return replace(promise, notes=(dead,))


class S3Sink(Sink):
    """Writes batches of one schema to files of one folder, exactly once.

    It connects at its first use, over a client that the process keeps.

    Raises:
        OptionError: ``partitionby`` names a column that the schema does not have.
        SchemaError: the format cannot hold such columns.
    """

    def __init__(self, options: S3Options, schema: pa.Schema) -> None:
        check_partitioning(options.partitionby, schema.names)
        check_schema(Partitioning(schema, options.partitionby).file_schema, options)
        self._options = options
        self._schema = schema
        self._seen: Seen = {}

    @property
    def target_id(self) -> str:
        """``s3://bucket/prefix``, without the store's address: the register is in the same store."""
        return str(self._options.path)

    def writer(self, task: Task) -> Writer:
        return self.raw_writer(task)

    def raw_writer(self, task: Task) -> CheckingWriter:
        """See ``deadletters.replay.BuryingSink``.

        Raises:
            SchemaError: the rows have no columns: no file could tell their number.
        """
        if not self._schema.names:
            raise SchemaError(
                "The rows have no columns, and files hold columns: the rows would be lost.",
                remedy="select the columns to write.",
            )
        match self._options.protocol:
            case "wal":
                return WalWriter(self._options, self._schema, task)
            case "idempotent":
                return IdempotentWriter(self._options, self._schema, task)
            case _:
                return TwoPhaseWriter(self._options, self._schema, task)

    def committer(self) -> ByProtocol:
        """One that composes for ``wal``, one that co-commits for ``idempotent``."""
        committers: dict[str, Committer] = {
            "2pc": TwoPhaseCommitter(self._options),
            "wal": WalCommitter(self._options, self._schema),
        }
        if self._options.protocol == "idempotent":
            committers["idempotent"] = IdempotentCommitter(self._options, self._seen)
        return ByProtocol(committers, self._options.protocol)

    def register(self) -> S3Register:
        return S3Register(self._options, self._seen)

    def preflight(self, job: str, tasks: int | None = None) -> Sequence[Finding]:
        return preflight(self._options, job)

    def guarantee(self) -> Guarantee:
        return guarantee(self._options)

    def fence(self, state: JobState) -> None:
        """Sweep what earlier ``idempotent`` runs left if this run has another protocol.

        There is nothing else to fence: a zombie's upload holds no lock.
        """
        if self._options.protocol == "idempotent" or state.generation < 2:
            return
        published = IdempotentCommitter(self._options, self._seen)
        try:
            left = [doubt.handle for doubt in published.in_doubt(state.job)]
            if left:
                published.abort(sweep(state, state.generation, left))
                published.forget(state)
        except AbsError as error:
            log.warning("job %s: what it left under idempotent stays for now: %s", state.job, error)

    def is_empty(self) -> bool:
        """Whether the folder holds only the sink's own objects."""
        folder, state = self._options.path.folder, self._options.state.folder
        own = [f"{folder}{OURS}/", *([state] if state != folder else [])]
        if self._options.letters is not None:
            own.append(self._options.letters.folder)
        objects = Objects(self._options.bucket).list(folder)
        return all(entry.key.startswith(tuple(own)) for entry in objects)

    def reach(self) -> None:
        """See ``Sink``; asks for the folder of a task's objects."""
        options = self._options
        place = options.state if options.protocol == "wal" else options.path
        Objects(options.bucket).reach(place.folder)

    def close(self) -> None:
        """Nothing: the process's client is kept for the next sink."""


def admin_committer(
    options: S3Options, seen: Seen | None = None, *, sized: bool = False
) -> ByProtocol:
    """A committer for all jobs and protocols, for commands.

    Args:
        seen: what the commands' register has seen.
        sized: as for ``TwoPhaseCommitter``.
    """
    return ByProtocol(
        {
            "2pc": TwoPhaseCommitter(options, sized=sized),
            "wal": WalCommitter(options, pa.schema([])),
            "idempotent": IdempotentCommitter(options, seen, sized=sized, orphans=True),
        }
    )


class S3Letters(AppendedLetters):
    """Args:
    options: of the sink; ``deadletter`` names the folder.
    texts: the options as text, by names in lower case, to which letters add how they are written;
        None: they do not.
    """

    def __init__(self, options: S3Options, texts: Mapping[str, str] | None = None) -> None:
        assert options.letters is not None
        self._options = options
        self._texts = texts
        self._folder = options.letters

    @property
    def _target(self) -> str:
        return str(self._options.path)

    @property
    def _place(self) -> str:
        return str(self._folder)

    def _sink(self, schema: pa.Schema, written: Mapping[str, str]) -> S3Sink:
        options = self._options
        if self._texts is not None and written:
            options = S3Options.parse({**written, **self._texts})
        if options.protocol == "wal":
            # A segment counts the mark among the dead letters; files and register are the same.
            options = replace(options, common=replace(options.common, protocol="2pc"))
        return S3Sink(options, schema)

    def _read(self) -> Iterator[tuple[str, bytes]]:
        options = self._options
        objects = Objects(options.bucket)
        # Whatever protocol the options name: others may have written there.
        common = replace(options.common, protocol="2pc")
        there = replace(options, path=self._folder, statepath=options.state, common=common)
        for key in [file.key for file in committed_files(there)]:
            body = objects.get(key)
            for number, line in enumerate(body.data.splitlines() if body else ()):
                yield blake2b(f"{key} {number}".encode(), digest_size=8).hexdigest(), line
