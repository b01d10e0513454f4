"""The birth certificate in Spark's checkpoint, and the checkpoint's normalised location.

The certificate is the file ``abs/certificate.json`` below ``checkpointLocation``; Spark ignores this
folder. If one query has several jobs (``abs_spark.epoch`` called with several names), it is the first
job's; each other job has ``abs/certificate-JOB.json``.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection

from abs_core.certificate import UNREADABLE, Certificate, Origin, from_text, to_text
from abs_core.errors import RefusedError
from abs_spark.checkpoint.ownfile import OwnFile
from abs_spark.checkpoint.spark_files import FAILURES, LOCAL, check_never_readable, split

_CONTAINERS = {"abfs", "abfss", "wasb", "wasbs"}
"""Schemes in which the part before the @ is the container, not a user."""


class CheckpointCertificates:
    """A ``CertificateStore`` in a query's checkpoint.

    Args:
        checkpoint: the option ``checkpointLocation``; None if unknown.
        job: the job with a file of its own; None: the query's first job.
    """

    def __init__(self, checkpoint: str | None, job: str | None = None) -> None:
        self._checkpoint = checkpoint
        self._file = OwnFile(checkpoint or "", _name(job))

    def read(self) -> Origin:
        """Read the certificate; not readable if this process does not find Spark's checkpoint.

        Raises:
            CorruptionError: the content is not a certificate.
            UnavailableError: this process has read the checkpoint before, and cannot now.
        """
        if not self._checkpoint:
            return UNREADABLE
        try:
            is_sparks, content = self._file.look()
        except FAILURES as error:
            check_never_readable(self._checkpoint, error)
            return UNREADABLE
        if not is_sparks:
            # If Spark's default file system is another one, this is not its checkpoint.
            return UNREADABLE
        return Origin() if content is None else Origin(from_text(content, self._file.path))

    def write(self, certificate: Certificate) -> None:
        if not self._checkpoint or not self.read().readable:
            raise RefusedError(
                "The driver's Python cannot see Spark's checkpoint.",
                remedy="set the option checkpointLocation, in a file system that pyarrow can write.",
            )
        content = to_text(certificate).encode()
        try:
            self._file.replace(content)
        except FAILURES as error:
            raise RefusedError(
                f"The birth certificate cannot be written into the checkpoint: {str(error)[:200]}.",
                remedy="let the driver's Python write there.",
            ) from error


def certificates_of(checkpoint: str, job: str, beside: Collection[str]) -> CheckpointCertificates:
    """The certificates of one of a query's jobs.

    Args:
        beside: jobs that this run of the query has begun; if ``certificate.json`` belongs to one of
            them, this job was not renamed but is another one.
    """
    own, first = CheckpointCertificates(checkpoint, job), CheckpointCertificates(checkpoint)
    if own.read().certificate is not None:
        return own
    certificate = first.read().certificate
    return (
        own
        if certificate is not None and certificate.job != job and certificate.job in beside
        else first
    )


def forget(checkpoint: str, job: str, register: str | None = None) -> bool:
    """Delete a job's certificate, so that the job may start anew; whether there was one.

    Keeps ``certificate.json`` if it belongs to another job.

    Args:
        register: id of the job's register, which also identifies the certificate of a renamed job.

    Raises:
        CorruptionError: the content is not a certificate.
        RefusedError: it cannot be read or deleted.
    """
    try:
        for file in (OwnFile(checkpoint, _name(job)), OwnFile(checkpoint, _name(None))):
            _, content = file.look()
            if content is None:
                continue
            certificate = from_text(content, file.path)
            if certificate.job != job and certificate.register != register:
                return False
            file.delete()
            return True
    except FAILURES as error:
        raise RefusedError(
            f"The birth certificate cannot be deleted: {str(error)[:200]}.",
            remedy="delete abs/certificate.json in the checkpoint by other means.",
        ) from error
    return False


def _name(job: str | None) -> str:
    return "certificate.json" if job is None else f"certificate-{job}.json"


def location(checkpoint: str | None) -> str | None:
    """The normalised location of the checkpoint, without user or password (I9).

    A local path gets this machine's name, so call it on the driver.

    Args:
        checkpoint: the option ``checkpointLocation``; None if unknown.
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
    """The part after ``//``, without user and password, even if the password contains a slash."""
    authority = rest.partition("/")[0]
    port = authority.partition(":")[2]
    if scheme in _CONTAINERS:
        return rest
    if "@" in authority or (port and not port.isdecimal()):
        return rest.rpartition("@")[2] if "@" not in authority else rest.partition("@")[2]
    return rest
