"""The options of ``abs-files``, parsed into one typed value."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from abs_clients.extras import importing
from abs_clients.options import (
    Option,
    Problems,
    boolean,
    described,
    fields_from,
    one_of,
    options_of,
    read_options,
    size,
    text,
    whole_number,
)
from abs_clients.s3.server import HADOOP, Bucket, Server
from abs_core.errors import OptionError
from abs_core.source import Limit
from abs_sources.files.cells import WriteOnceFolder, WriteOnceStore
from abs_sources.files.lines import CsvForm
from abs_sources.files.local import LocalStore
from abs_sources.files.model import Store
from abs_sources.files.pattern import Pattern, check_glob

NAME = "abs-files"
FORMATS = ("parquet", "json", "csv", "arrow", "text")
MIB = 1 << 20

_S3 = re.compile(r"s3[an]?://([^/]+)(?:/(.*))?", re.DOTALL)
_FILE = re.compile(r"file:(?://[^/]*)?(/.*)", re.DOTALL)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


@dataclass(frozen=True, slots=True)
class FileRoot:
    """A path, absolute or a key, without a slash at its end; ``bucket`` is None for a local one."""

    bucket: str | None
    path: str

    @classmethod
    def parse(cls, value: str) -> FileRoot:
        """Parse a path or URL in any of Spark's spellings; raises OptionError for other systems."""
        in_bucket = _S3.fullmatch(value.strip())
        if in_bucket is not None:
            return cls(in_bucket[1], (in_bucket[2] or "").strip("/"))
        local = _FILE.fullmatch(value.strip())
        if local is None and _SCHEME.match(value.strip()):
            raise OptionError(
                f"{value.strip()} is not a location that abs-files can read.",
                remedy="write a local path, file:/... or s3://bucket/prefix.",
            )
        path = local[1] if local is not None else text(value).strip()
        return cls(None, "/" + str(Path(path).absolute()).lstrip("/").rstrip("/"))

    @property
    def name(self) -> str:
        """For people, and to identify the place."""
        return self.path if self.bucket is None else f"s3://{self.bucket}/{self.path}"

    def below(self, name: str) -> FileRoot:
        return FileRoot(self.bucket, posixpath.join(self.path, name))


def _glob(text: str) -> FileRoot:
    place = FileRoot.parse(text)
    check_glob(place.path)
    return place


def _zone(text: str) -> str:
    try:
        pc.assume_timezone(pa.array([0], pa.timestamp("us")), text.strip())
    except pa.ArrowInvalid:
        raise ValueError("a time zone, such as Europe/Berlin, UTC or +01:00") from None
    return text.strip()


def _tokens(value: str) -> frozenset[str]:
    return frozenset(token.strip() for token in text(value).split(","))


_COUNT = whole_number(1, 1 << 40)
_BYTES = size(1, 1 << 62)

_ELSEWHERE = {
    "format": "use fileformat.",
    "delimiter": "use sep.",
    "paths": "give one path; a glob names several: /data/{a,b}.",
    "inferSchema": "give the schema by .schema(...); parquet and arrow files contain theirs.",
    "mergeSchema": "give the schema by .schema(...): a column that a file lacks is null.",
    "multiLine": "write one record a line.",
    "mode": "leave it out: a record that cannot be read is always an error.",
    "columnNameOfCorruptRecord": "leave it out: a record that cannot be read is always an error.",
    "emptyValue": 'leave it out: "" is the empty text, and nothing is NULL.',
    "enforceSchema": "leave it out: columns are found by the header's names.",
    "comment": "write files without comments.",
    "encoding": "write files in UTF-8.",
    "charset": "write files in UTF-8.",
    "lineSep": "end lines with \\n or \\r\\n.",
    "wholetext": "use Spark's own text source.",
    "cleanSource": "delete files yourself, when the query has committed them.",
    "sourceArchiveDir": "move files yourself, when the query has committed them.",
    "maxFileAge": "leave it out: files are never forgotten, whatever their age.",
    "fileNameOnly": "leave it out: files are identified by their whole path.",
    "modifiedBefore": "use a glob in path, or pathGlobFilter.",
    "modifiedAfter": "use a glob in path, or pathGlobFilter.",
    "ignoreLeadingWhiteSpace": "read it as a string and use trim in the query.",
    "ignoreTrailingWhiteSpace": "read it as a string and use trim in the query.",
    "nanValue": "read it as a string and use replace and cast in the query.",
    "dateFormat": "read it as a string and use to_date in the query.",
    "timestampFormat": "read it as a string and use to_timestamp in the query.",
    "timestampNTZFormat": "read it as a string and use to_timestamp_ntz in the query.",
    **HADOOP,
}
"""Options of Spark's file sources and of Hadoop's S3 client."""


@described
@dataclass(frozen=True, slots=True)
class FileOptions:
    """The parsed options. No secrets: S3 credentials come from boto3's chain.

    Args:
        limit: of one epoch.
        ignore_changed: skip a file that changed after it was taken, instead of refusing. A file
            must still be unchanged when it is read.
        chunk: bytes of lines that are parsed at once (json, csv, text).
        server: for paths on S3.
        poll_seconds: between two looks for new files, for an endless reader.
        readers: number of splits of an endless reading.
    """

    path: Annotated[
        FileRoot,
        _glob,
        "a folder, a file, or a glob (`*`, `?`, `[a-z]`, `{a,b}`); local, `file:` or `s3://`",
    ]
    fileformat: Annotated[
        str,
        one_of(*FORMATS),
        "`parquet`, `json` (an object a line), `csv`, `arrow` (IPC files and streams), `text`",
    ] = "parquet"
    log: Annotated[
        FileRoot | None, FileRoot.parse, "for streams: where the log is; default: in the checkpoint"
    ] = None
    limit: Limit = field(default_factory=Limit)
    latest_first: Annotated[
        bool, Option("latestFirst", boolean, False), "begin with the newest files"
    ] = False
    names: Annotated[
        str | None,
        Option("pathGlobFilter", text),
        "as in Spark; hidden files (`_`, `.`) are skipped, and hidden folders that a glob "
        "in path does not name",
    ] = None
    recursive: Annotated[bool, Option("recursiveFileLookup", boolean, False), "as in Spark"] = False
    ignore_changed: bool = False
    partition_bytes: Annotated[
        int,
        Option("maxPartitionBytes", _BYTES, 128 * MIB),
        "limit of a task; large files are divided, small files share a task",
    ] = 128 * MIB
    partitions: Annotated[
        int,
        Option("minPartitions", whole_number(1, 100_000), 8),
        "the least number of tasks of an epoch",
    ] = 8
    batchsize: Annotated[
        int, whole_number(1, 10_000_000), "rows of an Arrow batch, at most (parquet, arrow)"
    ] = 65_536
    chunk: int = 4 * MIB
    zone: Annotated[
        str | None,
        Option("timeZone", _zone),
        "the zone of timestamps in folder names that have no offset: that of the Spark "
        "session that wrote them; such folders are refused without it",
    ] = None
    adopt: Annotated[
        frozenset[str],
        Option("adopt", _tokens, frozenset()),
        "tokens that error messages name, separated by commas: your consent to give up a "
        "file, or to read it anew ([what to "
        "do](../how-to/when-it-stops.md#a-file-cannot-be-read))",
    ] = frozenset()
    csv: CsvForm = field(default_factory=CsvForm)
    server: Server = field(default_factory=Server)
    poll_seconds: float = 1.0
    readers: int = 2

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> Self:
        """Parse Spark's options: text to text, case-insensitive names.

        A stream needs a log; a batch has no use for one. Raises OptionError with all unknown,
        missing, malformed and contradictory options at once.
        """
        problems = Problems(NAME)
        values = read_options(options, OPTIONS, problems, elsewhere=_ELSEWHERE)
        if "path" not in {name.lower() for name in options}:
            problems.add("The option path is missing.", "name a folder, a file or a glob.")
        log = _log(values) if streaming else None
        if streaming and log is None and not problems:
            problems.add(
                "A stream needs the option log: a folder for this query alone, kept as long as "
                "its checkpoint.",
                "name one beside the checkpoint, or set checkpointLocation here, too: then the "
                "log is in it.",
            )
        problems.raise_any()
        given_fields = fields_from(cls, values) | {"log": log}
        return cls(
            **given_fields,
            limit=Limit(files=values["maxFilesPerTrigger"], bytes=values["maxBytesPerTrigger"]),
            ignore_changed=values["changedFiles"] == "ignore",
            csv=CsvForm(**fields_from(CsvForm, values)),
            server=Server.of(values),
        )

    def store(self) -> Store:
        pattern = Pattern.parse(self.path.path, self.names, recursive=self.recursive)
        if self.path.bucket is None:
            return LocalStore(pattern)
        with importing("A path on S3"):
            from abs_sources.files.s3 import S3Store
        return S3Store(Bucket(self.server, self.path.bucket), pattern, exists=self.log is None)

    def cells(self) -> WriteOnceStore | None:
        """Storage of the log, if there is one."""
        if self.log is None:
            return None
        if self.log.bucket is None:
            return WriteOnceFolder(Path(self.log.path))
        with importing("A path on S3"):
            from abs_sources.files.s3 import WriteOnceBucket
        return WriteOnceBucket(Bucket(self.server, self.log.bucket), self.log.path)


OPTIONS = (
    *options_of(FileOptions),
    Option("checkpointLocation", FileRoot.parse, doc="for streams: Spark's option"),
    Option("maxFilesPerTrigger", _COUNT, doc="limit of an epoch; default: all files"),
    Option("maxBytesPerTrigger", _BYTES, doc="limit of an epoch; a file is never in two epochs"),
    Option(
        "changedFiles",
        one_of("error", "ignore"),
        "error",
        doc="`ignore`: a file that changes after an epoch has taken it does not stop the query",
    ),
    *options_of(CsvForm),
    *options_of(Server),
)


def _log(values: Mapping[str, Any]) -> FileRoot | None:
    if values["log"] is not None:
        named: FileRoot = values["log"]
        return named
    checkpoint: FileRoot | None = values["checkpointLocation"]
    return None if checkpoint is None else checkpoint.below("abs-files")
