"""Names of data files: unique to one attempt (I6), and parsed exactly by a sweep.

    <path>/<folders>/<lead>.<job>-<register>-<generation>-<epoch>-<partition>-<attempt>-<n>.<ending>

The lead has no dot, and the fields after the job have no ``-``: so parsing is unambiguous for any job
name. ``%`` of a job key is written ``!``, which no key has: URL decoders would take it for an escape.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from abs_clients.s3.location import MAX_KEY, Location
from abs_core.model import HandleName
from abs_sinks.refusals import BadValuesError, Code, Reason

_FILE = re.compile(
    r"(?P<lead>[A-Za-z0-9_-]+)\.(?P<job>[A-Za-z0-9_.~@!-]+)-(?P<register>[0-9a-f]{16})"
    r"-(?P<generation>[0-9]+)-(?P<epoch>[0-9]+)-(?P<partition>[0-9]+)"
    r"-(?P<attempt>[0-9a-f]{1,24})-(?P<number>[0-9]+)\.(?P<ending>[a-z0-9.]+)"
)

_WRAPPED = {"gzip": ".gz", "zstd": ".zst", "none": ""}

BY_MANIFEST = "m."
"""Prefix of the endings of files that a manifest commits."""


@dataclass(frozen=True, slots=True)
class FileName:
    """The name of a data file: its handle, and its number among the handle's files."""

    handle: HandleName
    number: int
    lead: str = "part"
    ending: str = "parquet"

    def __str__(self) -> str:
        name = self.handle
        return (
            f"{self.lead}.{job_text(name.job)}-{name.register}-{name.generation}-{name.epoch}"
            f"-{name.partition}-{name.attempt}-{self.number}.{self.ending}"
        )

    @property
    def by_manifest(self) -> bool:
        """Whether the file is committed only if a manifest names it."""
        return self.ending.startswith(BY_MANIFEST)

    @classmethod
    def parse(cls, text: str) -> FileName | None:
        """Parse a file name; None if it is not of this sink."""
        found = _FILE.fullmatch(text)
        if found is None:
            return None
        handle = HandleName.parse(
            f"abs1:{found['register']}:{job_of(found['job'])}:{found['generation']}"
            f":{found['epoch']}:{found['partition']}:{found['attempt']}"
        )
        if handle is None:
            return None
        name = cls(handle, int(found["number"]), found["lead"], found["ending"])
        return name if str(name) == text else None


def job_text(job: str) -> str:
    """A job key, escaped for an object's key."""
    return job.replace("%", "!")


def job_of(text: str) -> str:
    """The inverse of ``job_text``."""
    return text.replace("!", "%")


def handle_of(key: str) -> HandleName | None:
    """The handle of the object or upload with this key; None if it is not of this sink."""
    name = FileName.parse(key.rpartition("/")[2])
    return None if name is None else name.handle


def ending(fileformat: str, compression: str) -> str:
    """The ending of file names; compressed text has the codec's, too."""
    return fileformat + (_WRAPPED[compression] if fileformat in ("json", "csv") else "")


def lead(template: str, handle: HandleName, now: datetime | None = None) -> str:
    """The template filled with the handle's epoch and partition, and today's date (UTC)."""
    date = (now or datetime.now(UTC)).strftime("%Y-%m-%d")
    return (
        template.replace("{epoch}", str(handle.epoch))
        .replace("{partition}", f"{handle.partition:05d}")
        .replace("{date}", date)
    )


def data_key(location: Location, folder: str, name: FileName) -> str:
    """The key of a data file.

    Args:
        folder: partition folders with a slash at the end, or empty.

    Raises:
        BadValuesError: the key is longer than S3 allows.
    """
    key = location.key(f"{folder}{name}")
    if len(key.encode()) > MAX_KEY:
        why = f"have values of partitionby that make a key longer than S3's {MAX_KEY} bytes"
        remedy = "shorten them in Spark, or take another column"
        raise BadValuesError(Reason(Code.TOO_LONG, "", why, remedy), None)
    return key
