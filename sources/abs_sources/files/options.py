"""The options of ``abs-files``, read once into one typed value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from abs_clients.options import (
    Option,
    Problems,
    boolean,
    one_of,
    read_options,
    seconds,
    text,
    whole_number,
)
from abs_clients.s3.server import Bucket, Server
from abs_core.errors import ConfigError, OptionError
from abs_core.source import Limit
from abs_sources.files.cells import Cells, FolderCells
from abs_sources.files.lines import CsvForm
from abs_sources.files.local import LocalStore
from abs_sources.files.model import Store
from abs_sources.files.pattern import Pattern

NAME = "abs-files"
FORMATS = ("parquet", "json", "csv", "arrow", "text")
MIB = 1 << 20

_S3 = re.compile(r"s3[an]?://([^/]+)(?:/(.*))?", re.DOTALL)
_FILE = re.compile(r"file:(?://[^/]*)?(/.*)", re.DOTALL)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_SIZE = re.compile(r"([0-9]{1,19})\s*(b|k|kb|kib|m|mb|mib|g|gb|gib|t|tb|tib)?")
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": MIB, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True, slots=True)
class Place:
    """A path, local or in a bucket.

    Args:
        bucket: None: a local path.
        path: absolute, or a key; without a slash at its end.
    """

    bucket: str | None
    path: str

    @classmethod
    def parse(cls, given: str) -> Place:
        """From a path or URL, in any of the spellings that Spark takes.

        Raises:
            OptionError: it is neither local nor on S3.
        """
        in_bucket = _S3.fullmatch(given.strip())
        if in_bucket is not None:
            return cls(in_bucket[1], (in_bucket[2] or "").strip("/"))
        local = _FILE.fullmatch(given.strip())
        if local is None and _SCHEME.match(given.strip()):
            raise OptionError(
                f"{given.strip()} is not a place that abs-files can read.",
                remedy="write a local path, file:/... or s3://bucket/prefix.",
            )
        path = local[1] if local is not None else text(given).strip()
        return cls(None, "/" + str(Path(path).absolute()).lstrip("/").rstrip("/"))

    @property
    def name(self) -> str:
        """For people, and to know the place again."""
        return self.path if self.bucket is None else f"s3://{self.bucket}/{self.path}"

    def below(self, name: str) -> Place:
        return Place(
            self.bucket, f"{self.path}/{name}".lstrip("/") if self.bucket else f"{self.path}/{name}"
        )


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text.strip().lower())
    value = int(found[1]) * _UNITS[(found[2] or "")[:1]] if found else 0
    if value < 1:
        raise ValueError("a size in bytes, for instance 10485760 or 10m")
    return value


def _one_character(text: str) -> str:
    unescaped = {"\\t": "\t"}.get(text, text)
    if len(unescaped) != 1 or unescaped in "\r\n":
        raise ValueError("one character")
    return unescaped


def _or_none(read: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: read(text) if text else ""


def _endpoint(text: str) -> str:
    if re.fullmatch(r"https?://[^/\s@?#]+/?", text.strip()) is None:
        raise ValueError("a URL of scheme, host and port, without credentials: http://host:port")
    return text.strip().rstrip("/")


_COUNT = whole_number(1, 1 << 40)
OPTIONS = (
    Option("path", Place.parse),
    Option("fileformat", one_of(*FORMATS), "parquet"),
    Option("log", Place.parse),
    Option("checkpointLocation", Place.parse),
    Option("maxFilesPerTrigger", _COUNT),
    Option("maxBytesPerTrigger", _size),
    Option("latestFirst", boolean, False),
    Option("pathGlobFilter", text),
    Option("recursiveFileLookup", boolean, False),
    Option("changedFiles", one_of("error", "ignore"), "error"),
    Option("maxPartitionBytes", _size, 128 * MIB),
    Option("minPartitions", whole_number(1, 100_000), 8),
    Option("batchsize", whole_number(1, 10_000_000), 65_536),
    Option("header", boolean, False),
    Option("sep", _one_character, ","),
    Option("quote", _or_none(_one_character), '"'),
    Option("escape", _or_none(_one_character), ""),
    Option("nullValue", str, ""),
    Option("endpoint", _endpoint),
    Option("region", text),
    Option("pathstyle", boolean),
    Option("timeout", seconds(1.0, 600.0), 60.0),
)

_CREDENTIALS = (
    "leave it out: credentials come by boto3's chain (AWS_ACCESS_KEY_ID, a profile, a role)."
)
_ELSEWHERE = {
    "format": "use fileformat.",
    "delimiter": "use sep.",
    "paths": "give one path; a glob names several: /data/{a,b}.",
    "inferSchema": "give the schema by .schema(...); parquet and arrow files hold theirs.",
    "mergeSchema": "give the schema by .schema(...): a column that a file lacks is null.",
    "multiLine": "write one record a line.",
    "mode": "leave it out: a record that cannot be read is always an error.",
    "encoding": "write files in UTF-8.",
    "lineSep": "end lines with \\n or \\r\\n.",
    "wholetext": "use Spark's own text source.",
    "cleanSource": "delete files yourself, when the query has committed them.",
    "sourceArchiveDir": "move files yourself, when the query has committed them.",
    "maxFileAge": "leave it out: a file is known for ever, whatever its age.",
    "fileNameOnly": "leave it out: a file is its whole path.",
    "modifiedBefore": "use a glob in path, or pathGlobFilter.",
    "modifiedAfter": "use a glob in path, or pathGlobFilter.",
    "dateFormat": "read it as a string and use to_date in the query.",
    "timestampFormat": "read it as a string and use to_timestamp in the query.",
    "accessKey": _CREDENTIALS,
    "secretKey": _CREDENTIALS,
    "fs.s3a.access.key": _CREDENTIALS,
    "fs.s3a.secret.key": _CREDENTIALS,
    "fs.s3a.endpoint": "use endpoint.",
    "fs.s3a.path.style.access": "use pathstyle.",
}
"""Options of Spark's file sources and of Hadoop's S3 client."""


@dataclass(frozen=True, slots=True)
class FileOptions:
    """What to read, and how. Holds no secret: S3's credentials come by boto3's chain.

    Args:
        path: a folder, a file or a glob.
        fileformat: one of ``FORMATS``; json has one object a line.
        log: the folder of the source's own log; None: none, for a batch read.
        limit: what one epoch may take.
        latest_first: of several files take the newest first.
        names: glob that a file's name must match.
        recursive: read files at any depth.
        ignore_changed: pass over a file that changed after it was taken, instead of refusing. One
            that is about to be read must be unchanged all the same.
        partition_bytes: bytes of a split, about.
        partitions: splits of an epoch that has enough to read.
        batchsize: rows of a batch, at most (parquet, arrow).
        chunk: bytes of lines that are parsed at once (json, csv, text).
        csv: how CSV files are written.
        server: for paths on S3.
        poll_seconds: between two looks for new files, for a reader without an end.
        readers: into how many splits what has no end is cut.
    """

    path: Place
    fileformat: str = "parquet"
    log: Place | None = None
    limit: Limit = field(default_factory=Limit)
    latest_first: bool = False
    names: str | None = None
    recursive: bool = False
    ignore_changed: bool = False
    partition_bytes: int = 128 * MIB
    partitions: int = 8
    batchsize: int = 65_536
    chunk: int = 4 * MIB
    csv: CsvForm = field(default_factory=CsvForm)
    server: Server = field(default_factory=Server)
    poll_seconds: float = 1.0
    readers: int = 2

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool) -> Self:
        """Read options as Spark hands them over: text to text, names in any case.

        Args:
            streaming: a stream needs a log; a batch has no use for one.

        Raises:
            OptionError: all that is unknown, missing, malformed or contradictory, at once.
        """
        problems = Problems(NAME)
        values = read_options(given, OPTIONS, problems, elsewhere=_ELSEWHERE)
        present = {name.lower() for name in given}
        if "path" not in present:
            problems.add("The option path is missing.", "name a folder, a file or a glob.")
        log = _log(values) if streaming else None
        if streaming and log is None and not problems:
            problems.add(
                "A stream needs the option log: a folder that is this query's own and lasts as long "
                "as its checkpoint.",
                "name one beside the checkpoint, or set checkpointLocation here, too: the log is "
                "then in it.",
            )
        problems.raise_any()
        endpoint, style = values["endpoint"], values["pathstyle"]
        return cls(
            path=values["path"],
            fileformat=values["fileformat"],
            log=log,
            limit=Limit(files=values["maxFilesPerTrigger"], bytes=values["maxBytesPerTrigger"]),
            latest_first=values["latestFirst"],
            names=values["pathGlobFilter"],
            recursive=values["recursiveFileLookup"],
            ignore_changed=values["changedFiles"] == "ignore",
            partition_bytes=values["maxPartitionBytes"],
            partitions=values["minPartitions"],
            batchsize=values["batchsize"],
            csv=CsvForm(
                header=values["header"],
                sep=values["sep"],
                quote=values["quote"],
                escape=values["escape"],
                nullvalue=values["nullValue"],
            ),
            server=Server(
                endpoint,
                values["region"],
                endpoint is not None if style is None else style,
                values["timeout"],
            ),
        )

    def store(self) -> Store:
        """The place of the files."""
        pattern = Pattern.parse(self.path.path, self.names, recursive=self.recursive)
        if self.path.bucket is None:
            return LocalStore(pattern)
        with _needs_boto3():
            from abs_sources.files.s3 import S3Store
        return S3Store(Bucket(self.server, self.path.bucket), pattern)

    def cells(self) -> Cells | None:
        """The place of the log; None where there is none."""
        if self.log is None:
            return None
        if self.log.bucket is None:
            return FolderCells(Path(self.log.path))
        with _needs_boto3():
            from abs_sources.files.bucket_cells import BucketCells
        return BucketCells(Bucket(self.server, self.log.bucket), self.log.path)


@contextmanager
def _needs_boto3() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(
            "Files on S3 need boto3, which is not installed.", remedy="install abs-sinks[s3]."
        ) from error


def _log(values: Mapping[str, Any]) -> Place | None:
    if values["log"] is not None:
        named: Place = values["log"]
        return named
    checkpoint: Place | None = values["checkpointLocation"]
    return None if checkpoint is None else checkpoint.below("abs-files")
