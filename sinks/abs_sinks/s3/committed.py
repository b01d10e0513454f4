"""What of a folder is committed: for readers, and for audits."""

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
from abs_sinks.s3.register import Cell, S3Register

LOOK_SECONDS = 20.0
"""For how long a reader begins anew whose manifests were folded meanwhile."""


def committed_files(options: S3Options, beside: Sequence[Location] = ()) -> list[CommittedFile]:
    """Every data file of ours in the folder that is committed, by key.

    Each job's epochs are whole: those that its register held as finished at one moment. Files that
    2pc and wal wrote are committed by being there; those of ``idempotent`` only by a manifest. Whether
    what a manifest names is still there is told by who opens it: see ``is_gone``.

    Args:
        options: with ``protocol=idempotent``, files of other protocols are left out.
        beside: other state locations of jobs that write there. That of ``options`` is looked at
            besides, and ``_abs`` in the path.

    Raises:
        RegisterLostError: files go by a manifest, and no register of their job was found.
        TargetError: the server refused or went away.
    """
    jobs = _Jobs(_states(options, beside))
    jobs.read_all()
    # Registers first, and files after: what a manifest names is there before the manifest is.
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
    """What to raise where a committed file is not there any more.

    None where no manifest names it: a file that is committed by being there, and was deleted.
    """
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
    """The same folder with each state location that its jobs may have."""
    places = dict.fromkeys((None, options.statepath, *beside))
    return [replace(options, statepath=place) for place in places]


@dataclass(slots=True)
class _Jobs:
    """The jobs that write to one folder, as far as they were read.

    Args:
        states: each place where their registers may be.
        files: what their manifests name.
        registers: the ids of their registers: a job that was renamed keeps it.
    """

    states: Sequence[S3Options]
    files: dict[str, CommittedFile] = field(default_factory=dict)
    registers: set[str] = field(default_factory=set)

    def read_all(self) -> None:
        for state in self.states:
            for job in S3Register(state).names():
                self._read(state, job)

    def require(self, name: FileName, listed: Listed, path: Location) -> None:
        """The file's job must be known; it is looked for once more, as it may have begun meanwhile.

        Raises:
            RegisterLostError: its register, which was there before the file, is not.
        """
        if name.handle.register in self.registers:
            return
        for state in self.states:
            self._read(state, name.handle.job)
        if name.handle.register not in self.registers:
            raise _unknown(name, listed, path, [state.state for state in self.states])

    def _read(self, state: S3Options, job: str) -> None:
        # A manifest that is gone was folded: the register lists another one by now.
        found = Patience(seconds=LOOK_SECONDS).retry(partial(_of, state, job))
        if found is not None:
            cell, files = found
            self.registers.add(cell.state.register)
            self.files |= {file.key: file for file in files}


def _of(options: S3Options, job: str) -> tuple[Cell, list[CommittedFile]] | None:
    found = S3Register(options).cell(job)
    if found is None:
        return None
    manifests = Manifests(options, job)
    files = [file for name in found[0].manifests for file in manifests.read(name)]
    return found[0], [file for file in files if _is_in(options.path, file.key)]


def _is_in(path: Location, key: str) -> bool:
    """Whether a sink of this path has put it there: one of a path below it has folders of its own."""
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
