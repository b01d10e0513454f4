"""The birth certificate in Spark's checkpoint, and where that checkpoint lies, in one spelling.

The certificate is the file ``abs/certificate.json`` below ``checkpointLocation``. Spark looks at none
but its own folders there. Where one query has several jobs (``abs_spark.epoch`` called with several
names), it is the first one's; each other has ``abs/certificate-JOB.json``.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from pathlib import Path

from pyarrow import fs

from abs_core.births.certificate import UNREADABLE, Certificate, Origin, from_text, to_text
from abs_core.durable import flush_folder, make_durably
from abs_core.errors import RefusedError
from abs_spark.checkpoint import (
    FAILURES,
    LOCAL,
    check_never_readable,
    locate,
    note_readable,
    split,
)

_FOLDER = "abs"
_CONTAINERS = {"abfs", "abfss", "wasb", "wasbs"}
"""Schemes in which what stands before the @ is the container, not a user."""


class CheckpointCertificates:
    """A ``CertificateStore`` in a query's checkpoint.

    Args:
        checkpoint: the option ``checkpointLocation``; None where the query does not tell.
        job: whose own file it is, where the query's first job has ``certificate.json``.
    """

    def __init__(self, checkpoint: str | None, job: str | None = None) -> None:
        self._checkpoint = checkpoint
        self._file = _file(job)

    def read(self) -> Origin:
        """What is there; not readable where this process does not find Spark's checkpoint there.

        Raises:
            CorruptionError: what is there is no certificate.
            UnavailableError: this process has read the checkpoint before, and cannot now.
        """
        if not self._checkpoint:
            return UNREADABLE
        try:
            filesystem, folder = locate(self._checkpoint)
            path = f"{folder.rstrip('/')}/{self._file}"
            spare = f"{path}.new"
            spark, found, new = filesystem.get_file_info(
                [f"{folder.rstrip('/')}/metadata", path, spare]
            )
            if not _is_file(spark):
                # Where Spark's default file system is another one, this is not its checkpoint.
                return UNREADABLE
            note_readable(self._checkpoint)
            there = [each for each in (found, new) if _is_file(each)]
            if not there:
                return Origin()
            with filesystem.open_input_stream(there[0].path) as file:
                content = bytes(file.read())
        except FAILURES as error:
            check_never_readable(self._checkpoint, error)
            return UNREADABLE
        return Origin(from_text(content, there[0].path))

    def write(self, certificate: Certificate) -> None:
        if not self._checkpoint or not self.read().readable:
            raise RefusedError(
                "Spark's checkpoint is not to be seen from the driver's Python.",
                remedy="set the option checkpointLocation, in a file system that pyarrow can write.",
            )
        content = to_text(certificate).encode()
        try:
            filesystem, folder = locate(self._checkpoint)
            replace_file(filesystem, f"{folder.rstrip('/')}/{self._file}", content)
        except FAILURES as error:
            raise RefusedError(
                f"{self._file} cannot be written into the checkpoint: {str(error)[:200]}.",
                remedy="let the driver's Python write there.",
            ) from error


def certificates_of(checkpoint: str, job: str, beside: Collection[str]) -> CheckpointCertificates:
    """The certificates of one of a query's jobs.

    Args:
        beside: jobs that this very run of the query has begun: where ``certificate.json`` is one of
            theirs, this is no renamed job, but another one.
    """
    own, first = CheckpointCertificates(checkpoint, job), CheckpointCertificates(checkpoint)
    if own.read().certificate is not None:
        return own
    found = first.read().certificate
    return own if found is not None and found.job != job and found.job in beside else first


def forget(checkpoint: str, job: str, register: str | None = None) -> bool:
    """Delete a job's certificate, so that it may begin again from nothing; whether there was one.

    Another job's, which ``certificate.json`` can be, stays.

    Args:
        register: the id of the job's register: the certificate of a job that was renamed names it, too.

    Raises:
        CorruptionError: what lies there is no certificate: nobody can tell whose it was.
        RefusedError: it cannot be told, or not be deleted.
    """
    try:
        filesystem, folder = locate(checkpoint)
        for file in (_file(job), _file(None)):
            path = f"{folder.rstrip('/')}/{file}"
            found = filesystem.get_file_info([path, f"{path}.new"])
            there = [each for each in found if _is_file(each)]
            if not there:
                continue
            with filesystem.open_input_stream(there[0].path) as stream:
                certificate = from_text(bytes(stream.read()), there[0].path)
            if certificate.job != job and certificate.register != register:
                return False
            for each in there:
                filesystem.delete_file(each.path)
            return True
    except FAILURES as error:
        raise RefusedError(
            f"The birth certificate cannot be deleted: {str(error)[:200]}.",
            remedy=f"delete {_file(None)} in the checkpoint by other means.",
        ) from error
    return False


def _file(job: str | None) -> str:
    return f"{_FOLDER}/certificate.json" if job is None else f"{_FOLDER}/certificate-{job}.json"


def location(checkpoint: str | None) -> str | None:
    """Where the checkpoint lies: the same text for every spelling, without user or password (I9).

    A local path is told with this machine's name; so it is to be asked on the driver.

    Args:
        checkpoint: the option ``checkpointLocation``; None where the query does not tell.
    """
    if not checkpoint:
        return None
    scheme, rest = split(checkpoint)
    if scheme == LOCAL:
        return f"{LOCAL}://{socket.gethostname().lower()}{os.path.realpath(rest)}"
    rest = rest.partition("?")[0].partition("#")[0]
    authority, path = "", rest
    if rest.startswith("//"):
        authority, _, path = _without_user(rest[2:], scheme).partition("/")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return f"{scheme}://{authority.lower()}/{'/'.join(parts)}"


def _without_user(rest: str, scheme: str) -> str:
    """What follows ``//``, without user and password; also where a slash stands in the password."""
    authority = rest.partition("/")[0]
    port = authority.partition(":")[2]
    if scheme in _CONTAINERS:
        return rest
    if "@" in authority or (port and not port.isdecimal()):
        return rest.rpartition("@")[2] if "@" not in authority else rest.partition("@")[2]
    return rest


def _is_file(info: fs.FileInfo) -> bool:
    return bool(info.type == fs.FileType.File)


def replace_file(filesystem: fs.FileSystem, path: str, content: bytes) -> None:
    """Write a file of a checkpoint, durably; who reads it finds all of it, or all of the old one."""
    if isinstance(filesystem, fs.LocalFileSystem):
        _replace(Path(path), content)
    elif filesystem.type_name == "hdfs":
        _replace_by_move(filesystem, path, content)
    else:  # in an object store an object is there as a whole, or not
        _put(filesystem, path, content)


def _put(filesystem: fs.FileSystem, path: str, content: bytes) -> None:
    with filesystem.open_output_stream(path) as file:
        file.write(content)


def _replace(path: Path, content: bytes) -> None:
    make_durably(path.parent)
    temporary = path.with_name(f"{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    flush_folder(path.parent)


def _replace_by_move(filesystem: fs.FileSystem, path: str, content: bytes) -> None:
    """HDFS moves nothing over what is there: in between the new one lies beside it, and is read."""
    filesystem.create_dir(path.rpartition("/")[0])
    temporary, spare = f"{path}.tmp", f"{path}.new"
    _put(filesystem, temporary, content)
    old, left = filesystem.get_file_info([path, spare])
    if _is_file(left):
        filesystem.delete_file(spare)
    filesystem.move(temporary, spare)
    if _is_file(old):
        filesystem.delete_file(path)
    filesystem.move(spare, path)
