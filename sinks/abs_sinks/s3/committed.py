"""What of a folder is committed: for readers, and for audits."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from abs_clients.s3.location import OURS
from abs_clients.s3.objects import Objects
from abs_core.patience import Patience
from abs_sinks.s3.layout import FileName
from abs_sinks.s3.manifests import CommittedFile, Manifests
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.register import S3Register

LOOK_SECONDS = 20.0
"""For how long a reader begins anew whose manifests were folded meanwhile."""


def committed_files(options: S3Options) -> list[CommittedFile]:
    """Every data file of ours in the folder that is committed, by key.

    Each job's epochs are whole: those that its register held as finished at one moment. Files that
    2pc and wal wrote are committed by being there; those of ``idempotent`` only by a manifest.

    Args:
        options: with ``protocol=idempotent``, the folder is not listed: files of other protocols are
            left out, and the cost does not grow with what is uncommitted.

    Raises:
        TargetError: the server refused or went away.
    """
    found = {file.key: file for file in _by_manifests(options)}
    if options.protocol != "idempotent":
        found |= {file.key: file for file in _by_being_there(options)}
    return [found[key] for key in sorted(found)]


def _by_manifests(options: S3Options) -> Iterator[CommittedFile]:
    register = S3Register(options)
    for job in register.names():
        # A manifest that is gone was folded: the register lists another one by now.
        yield from Patience(seconds=LOOK_SECONDS).retry(partial(_of, options, register, job))


def _of(options: S3Options, register: S3Register, job: str) -> list[CommittedFile]:
    cell = register.cell(job)
    if cell is None:
        return []
    manifests = Manifests(options, job)
    files = [file for name in cell[0].manifests for file in manifests.read(name)]
    return [file for file in files if file.key.startswith(options.path.folder)]


def _by_being_there(options: S3Options) -> Iterator[CommittedFile]:
    ours = options.path.key(OURS, "")
    for listed in Objects(options.bucket).list(options.path.folder):
        name = FileName.parse(listed.key.rpartition("/")[2])
        if name is not None and not name.by_manifest and not listed.key.startswith(ours):
            yield CommittedFile(listed.key, listed.size, "")
