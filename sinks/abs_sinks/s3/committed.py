"""Lists the committed files of a folder, for readers and audits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from abs_clients.s3.location import Location
from abs_clients.s3.objects import Listed, Objects
from abs_core.errors import CorruptionError, RegisterLostError
from abs_core.patience import Patience
from abs_sinks.s3.layout import FileName
from abs_sinks.s3.manifests import CommittedFile, Manifests
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.register import RegisterObject, S3Register

LOOK_SECONDS = 20.0
"""How long a reader retries when its manifests were folded meanwhile."""


def committed_files(options: S3Options, beside: Sequence[Location] = ()) -> list[CommittedFile]:
    """The committed data files of the folder, sorted by key.

    Of each job these are whole epochs: those finished in its register at one moment. A file of 2pc or
    wal is committed if it exists, one of ``idempotent`` if a manifest names it; such a file may have
    been deleted since (``is_gone``).

    Args:
        options: with ``protocol=idempotent``, files of other protocols are left out.
        beside: further state locations of jobs, besides that of ``options`` and ``_abs`` in the path.

    Raises:
        RegisterLostError: a file needs a manifest, and its job's register was not found.
        TargetError: the server refused or went away.
    """
    jobs = _Jobs(_states(options, beside))
    jobs.read_all()
    # Registers first, then files: files exist before the manifest that names them.
    for listed in Objects(options.bucket).list(options.path.folder):
        name = FileName.parse(listed.key.rpartition("/")[2])
        if name is None or not _is_in(options.path, listed.key):
            continue
        if name.by_manifest:
            jobs.require(name, listed, options.path)
        elif options.protocol != "idempotent":
            jobs.files[listed.key] = CommittedFile(listed.key, listed.size, "")
    return [jobs.files[key] for key in sorted(jobs.files)]


def is_gone(path: Location, key: str) -> CorruptionError | None:
    """The error for a missing committed file; None if no manifest names it: it was deleted."""
    name = FileName.parse(key.rpartition("/")[2])
    if name is None or not name.by_manifest:
        return None
    return CorruptionError(
        f"A manifest names the file s3://{path.bucket}/{key} as committed, and it is not there: "
        "somebody deleted it, or a lifecycle rule did.",
        handle=name.handle,
        remedy="restore the object. If it is gone for good, its rows are missing: read those files of "
        "abs_sinks.s3.committed_files() that are there.",
    )


def _states(options: S3Options, beside: Sequence[Location]) -> list[S3Options]:
    """The folder's options with each possible state location."""
    places = dict.fromkeys((None, options.statepath, *beside))
    return [replace(options, statepath=place) for place in places]


@dataclass(slots=True)
class _Jobs:
    """The jobs read so far that write to one folder.

    Args:
        states: possible places of their registers.
        files: named by their manifests.
        registers: ids of their registers; a renamed job keeps its id.
    """

    states: Sequence[S3Options]
    files: dict[str, CommittedFile] = field(default_factory=dict)
    registers: set[str] = field(default_factory=set)

    def read_all(self) -> None:
        for state in self.states:
            for job in S3Register(state).names():
                self._read(state, job)

    def require(self, name: FileName, listed: Listed, path: Location) -> None:
        """Find the file's job, which may have started meanwhile; else ``RegisterLostError``."""
        if name.handle.register in self.registers:
            return
        for state in self.states:
            self._read(state, name.handle.job)
        if name.handle.register not in self.registers:
            raise _unknown(name, listed, path, [state.state for state in self.states])

    def _read(self, state: S3Options, job: str) -> None:
        # A missing manifest was folded: the register lists another by now.
        contents = Patience(seconds=LOOK_SECONDS).retry(partial(_of, state, job))
        if contents is not None:
            cell, files = contents
            self.registers.add(cell.state.register)
            self.files |= {file.key: file for file in files}


def _of(options: S3Options, job: str) -> tuple[RegisterObject, list[CommittedFile]] | None:
    stored = S3Register(options).cell(job)
    if stored is None:
        return None
    manifests = Manifests(options, job)
    files = [file for name in stored[0].manifests for file in manifests.read(name)]
    return stored[0], [file for file in files if _is_in(options.path, file.key)]


def _is_in(path: Location, key: str) -> bool:
    """Whether a sink of this path, not of a path below it, put the file there."""
    folders = key.removeprefix(path.folder).split("/")[:-1]
    return key.startswith(path.folder) and all("=" in folder for folder in folders)


def _unknown(
    name: FileName, listed: Listed, path: Location, states: Sequence[Location]
) -> RegisterLostError:
    places = " nor in ".join(map(str, states))
    return RegisterLostError(
        f"The file s3://{path.bucket}/{listed.key} is committed only where a manifest names it, and "
        f"the register that lists its manifests ({name.handle.register}) is not in {places}: a reader "
        "would miss the job's rows.",
        job=name.handle.job,
        handle=str(name.handle),
        remedy="if the job has the option statepath, give the same to the reader (statepaths takes "
        "several, with commas between them); if its register was deleted, restore the object; if it "
        "was retired or begun again, take its files out of the folder, as docs/reference/s3.md says.",
    )
