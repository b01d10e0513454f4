"""Names of objects. Data files: unique to one attempt (I6), and parsed exactly by a sweep.

    <path>/<folders>/<lead>.<job>-<register>-<generation>-<epoch>-<partition>-<attempt>-<n>.<ending>

The lead has no dot, and the fields after the job have no ``-``: so parsing is unambiguous for any job
name. ``%`` of a job key is written ``!``, which no key has: URL decoders would take it for an escape.

Objects of the state location that have the name of a handle, segments and markers, are

    <state>/<folder>/job=<job>/<handle><ending>

There ``:`` of the handle is written ``=``, too, which no handle's name has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from abs_clients.s3.location import MAX_KEY, Location
from abs_clients.s3.objects import Listed, Objects
from abs_core.errors import OptionError
from abs_core.model import HandleName
from abs_sinks.refusals import BadValuesError, Code, Reason
from abs_sinks.s3.options import S3Options

_FILE = re.compile(
    r"(?P<lead>[A-Za-z0-9_-]+)\.(?P<job>[A-Za-z0-9_.~@!-]+)-(?P<register>[0-9a-f]{16})"
    r"-(?P<generation>[0-9]+)-(?P<epoch>[0-9]+)-(?P<partition>[0-9]+)"
    r"-(?P<attempt>[0-9a-f]{1,24})-(?P<number>[0-9]+)\.(?P<ending>[a-z0-9.]+)"
)

_WRAPPED = {"gzip": ".gz", "zstd": ".zst", "none": ""}

MAX_NAME = 255
"""Longest name of a file or folder, in bytes (Linux: NAME_MAX)."""

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
        match = _FILE.fullmatch(text)
        if match is None:
            return None
        handle = HandleName.parse(
            f"abs1:{match['register']}:{job_of(match['job'])}:{match['generation']}"
            f":{match['epoch']}:{match['partition']}:{match['attempt']}"
        )
        if handle is None:
            return None
        name = cls(handle, int(match["number"]), match["lead"], match["ending"])
        return name if str(name) == text else None


UPTO = "upto"
"""Option of readers: the text of an ``UpTo``."""


@dataclass(frozen=True, slots=True)
class UpTo:
    """The files of one register up to an epoch: ``register-generation-epoch``.

    Later epochs have a higher pair of generation and epoch, also after an adoption, which counts epochs
    anew.
    """

    register: str
    last: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.register}-{self.last[0]}-{self.last[1]}"

    @classmethod
    def parse(cls, text: str) -> UpTo:
        """Raises OptionError: the text is none of ``str``."""
        match = re.fullmatch(r"([0-9a-f]{16})-([0-9]{1,18})-([0-9]{1,18})", text.strip())
        if match is None:
            raise OptionError(
                f"The option {UPTO} is not register-generation-epoch: {text[:60]!r}.",
                remedy="take it from abs_spark.cut(...).options(...), or from `abs epochs --json`.",
            )
        return cls(match[1], (int(match[2]), int(match[3])))

    def has(self, key: str) -> bool:
        """Whether the object with this key is one of them."""
        handle = handle_of(key)
        return (
            handle is not None
            and handle.register == self.register
            and (handle.generation, handle.epoch) <= self.last
        )


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
        BadValuesError: the key is longer than S3 allows, or a local folder's name than a file system
            does.
    """
    key = location.key(f"{folder}{name}")
    if not location.bucket and any(len(part.encode()) > MAX_NAME for part in folder.split("/")):
        why = f"have values of partitionby that make a folder's name longer than {MAX_NAME} bytes"
        remedy = "shorten them in Spark, or take another column"
        raise BadValuesError(Reason(Code.TOO_LONG, "", why, remedy), None)
    if len(key.encode()) > MAX_KEY:
        why = f"have values of partitionby that make a key longer than S3's {MAX_KEY} bytes"
        remedy = "shorten them in Spark, or take another column"
        raise BadValuesError(Reason(Code.TOO_LONG, "", why, remedy), None)
    return key


@dataclass(frozen=True, slots=True)
class PerHandle:
    """One kind of such objects, by its folder and ending."""

    folder: str
    ending: str

    def key(self, options: S3Options, handle: HandleName) -> str:
        """The key of the handle's object."""
        name = job_text(str(handle)).replace(":", "=")
        return options.state.key(self.folder, f"job={job_text(handle.job)}", f"{name}{self.ending}")

    def handle_of(self, key: str) -> HandleName | None:
        """The handle whose object has this key; None if there is none."""
        folder, _, name = key.rpartition("/")
        if not name.endswith(self.ending):
            return None
        handle = HandleName.parse(job_of(name.removesuffix(self.ending)).replace("=", ":"))
        if handle is None or not folder.endswith(f"{self.folder}/job={job_text(handle.job)}"):
            return None
        return handle

    def folder_of(self, options: S3Options, job: str | None) -> str:
        """The folder of a job's objects, or of all."""
        names = (self.folder, "") if job is None else (self.folder, f"job={job_text(job)}", "")
        return options.state.key(*names)

    def of_job(
        self, options: S3Options, job: str | None
    ) -> Iterator[tuple[HandleName, Listed, float]]:
        """The handles of a job, or of all: each with its object and the object's age in seconds."""
        now = datetime.now(UTC)
        for listed in Objects(options.bucket).list(self.folder_of(options, job)):
            handle = self.handle_of(listed.key)
            if handle is not None and job in (None, handle.job):
                yield handle, listed, max(0.0, (now - listed.modified).total_seconds())
