"""The options of ``abs-s3``, read once into one typed value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Self

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
from abs_clients.s3.location import OURS, Location
from abs_clients.s3.server import HADOOP, Bucket, Server
from abs_core.errors import OptionError
from abs_core.patience import Patience
from abs_sinks.options import (
    COMMON,
    CommonOptions,
    DeadLetterOptions,
    Place,
    ToSink,
    check_may_bury,
    column_names,
    sink_or,
)

NAME = "abs-s3"

MIB = 1 << 20
MIN_PART = 5 * MIB
"""Smallest part of an upload, except its last (Amazon S3 user guide, "Multipart upload limits")."""

COMPRESSIONS: Mapping[str, tuple[str, ...]] = {
    "parquet": ("snappy", "zstd", "gzip", "lz4", "brotli", "none"),
    "json": ("none", "gzip", "zstd"),
    "csv": ("none", "gzip", "zstd"),
    "arrow": ("none", "lz4", "zstd"),
}
"""The codecs of each format; the first is the default."""

_CODECS = ("none", "uncompressed", "snappy", "zstd", "gzip", "lz4", "brotli")


def _lead(text: str) -> str:
    plain = text.replace("{epoch}", "0").replace("{partition}", "0").replace("{date}", "0")
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", plain) is None:
        raise ValueError(
            "letters, digits, - and _, with {epoch}, {partition} and {date} where you want them"
        )
    return text


def _sse(text: str) -> str:
    word = one_of("aes256", "aws:kms", "aws:kms:dsse")(text)
    return "AES256" if word == "aes256" else word


_ELSEWHERE = {
    **HADOOP,
    "wal": "leave it out: segments are beside the register; the option statepath says where that is.",
    "format": "use fileformat.",
    "mergeSchema": "leave it out: every file has the query's schema.",
    "schemachange": "leave it out: every file has the query's schema, and readers merge them.",
    "maxRecordsPerFile": "use maxfilesize.",
    "partitionOverwriteMode": "leave it out: this sink only adds files.",
    "write": "leave it out: this sink only adds rows, changes with their operation and position as "
    "any others; abs-postgres does upserts, and applies changes.",
    "statepaths": "use statepath: a job has one; statepaths is for spark.read.format('abs-s3').",
    "key": "leave it out: this sink only adds rows; abs-postgres does upserts.",
}
"""Options of Spark's file sinks and of Hadoop's S3 client."""


@described
@dataclass(frozen=True, slots=True, kw_only=True)
class UploadOptions(DeadLetterOptions[Place]):
    """What all sinks that write files have: a sink's own options inherit it."""

    partsize: Annotated[int, size(MIN_PART, 1 << 30), "bytes of a part of an upload"] = 8 * MIB
    uploadthreads: Annotated[int, whole_number(1, 64), "parts that a task sends at once"] = 4
    rowgroupsize: Annotated[int, size(MIB, 1 << 30), "bytes of a row group"] = 32 * MIB
    maxfilesize: Annotated[
        int, size(MIB, 1 << 40), "bytes after which a task begins another file"
    ] = 1 << 30
    maxopenfiles: Annotated[
        int,
        whole_number(1, 1000),
        "number of folders (partitions) that a task writes to at once; rows of others "
        "wait on the local disk",
    ] = 8

    @property
    def uploads(self) -> dict[str, Any]:
        """These as arguments, for another sink of files that takes them as they are."""
        return {option.name: getattr(self, option.name) for option in fields(UploadOptions)}


@described
@dataclass(frozen=True, slots=True)
class S3Options(UploadOptions[Location]):
    """Where and how to write. Holds no secret: credentials come by boto3's chain.

    Args:
        common: what every sink takes.
        server: where it listens.
    """

    path: Annotated[Location, Location.parse, "`s3://bucket/prefix`; the bucket must exist"]
    common: CommonOptions = field(default_factory=CommonOptions)
    fileformat: Annotated[
        str,
        one_of(*COMPRESSIONS),
        "`parquet`, `json` (an object a line), `csv`, `arrow` (IPC files)",
    ] = "parquet"
    partitionby: Annotated[
        tuple[str, ...],
        column_names,
        "columns of the input, separated by commas, that become folders "
        "([`name=value`](s3.md#columns-in-folder-names)). A name must not begin with `_` "
        "or `.`, because readers skip such folders",
    ] = ()
    compression: Annotated[
        str,
        Option("compression", one_of(*_CODECS)),
        "parquet: `snappy` (default), `zstd`, `gzip`, `lz4`, `brotli`, `none`; json and "
        "csv: `none` (default), `gzip`, `zstd`; arrow: `none` (default), `lz4`, `zstd`",
    ] = "snappy"
    server: Server = field(default_factory=Server)
    sse: Annotated[
        str | None,
        _sse,
        "server-side encryption: `AES256`, `aws:kms`, `aws:kms:dsse`; default: the "
        "bucket's setting",
    ] = None
    ssekmskeyid: Annotated[str | None, text, "the key for `aws:kms` and `aws:kms:dsse`"] = None
    filename: Annotated[
        str, _lead, "the beginning of file names; may contain `{epoch}`, `{partition}` and `{date}`"
    ] = "part"
    targetfilesize: Annotated[int, size(MIB, 1 << 40), "size of the files that `wal` composes"] = (
        128 * MIB
    )
    header: Annotated[bool, boolean, "whether CSV files begin with the names of the columns"] = True
    statepath: Annotated[
        Location | None,
        Location.parse,
        "where the register is, in the same bucket; default: `_abs` below `path`",
    ] = None
    deadletter: Annotated[
        Location | ToSink | None,
        sink_or(Location.parse),
        "a folder of the same bucket, `s3://bucket/folder`, for rows that the files "
        "cannot hold, under the same decision; in `abs_spark.epoch` also another sink "
        "(`sink:NAME`). Without it such a row stops the query; see [dead "
        "letters](dead-letters.md)",
    ] = field(default=None, kw_only=True)

    @property
    def patience(self) -> Patience:
        """With the server."""
        where = self.server.endpoint or "Amazon"
        return Patience(self.common.patience, system=f"S3 at {where}, {self.path}")

    @property
    def bucket(self) -> Bucket:
        """The bucket of the data and of the register."""
        return Bucket(self.server, self.path.bucket, self.sse, self.ssekmskeyid)

    @property
    def protocol(self) -> str:
        return self.common.protocol

    @property
    def written(self) -> dict[str, str]:
        """See ``DeadLetterOptions``: what readers of the folder expect of its files."""
        texts = {"fileformat": self.fileformat, "partitionby": ",".join(self.partitionby)}
        if self.fileformat == "csv":
            texts["header"] = str(self.header).lower()
        if (
            self.protocol == "idempotent"
        ):  # whose readers may leave out files that no manifest names
            texts["protocol"] = self.protocol
        return {name: text for name, text in texts.items() if text}

    @property
    def state(self) -> Location:
        """Where register and manifests are."""
        return self.statepath or self.path.within(OURS)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Read options as Spark passes them: text to text, names in any case.

        Raises:
            OptionError: lists all unknown, missing, malformed and contradictory options.
        """
        problems = Problems(NAME)
        values = read_options(options, (*COMMON, *OPTIONS), problems, elsewhere=_ELSEWHERE)
        if "path" not in {name.lower() for name in options}:
            problems.add("The option path is missing.", "write s3://bucket/prefix.")
        common = CommonOptions.of(values)
        values["compression"] = _compression(values, problems)
        _check_together(common, values, problems)
        problems.raise_any()
        return cls(common=common, server=Server.of(values), **fields_from(cls, values))


OPTIONS = (*options_of(S3Options), *options_of(Server))


def _compression(values: Mapping[str, Any], problems: Problems) -> str:
    choices = COMPRESSIONS[values["fileformat"]]
    asked = values["compression"]
    asked = "none" if asked == "uncompressed" else asked
    if asked is not None and asked not in choices:
        problems.add(
            f"Files of format {values['fileformat']} cannot be compressed with {asked} here.",
            f"take one of {', '.join(choices)}.",
        )
    return str(asked or choices[0])


def _check_together(common: CommonOptions, values: Mapping[str, Any], problems: Problems) -> None:
    """Refuse meaningless combinations."""
    if values["ssekmskeyid"] is not None and not str(values["sse"]).startswith("aws:kms"):
        problems.add("The option ssekmskeyid needs sse=aws:kms.", "set both, or none.")
    if hidden := [name for name in values["partitionby"] if name.startswith(("_", "."))]:
        problems.add(
            f"The option partitionby names {', '.join(hidden)}: readers such as Spark, Hive and "
            "Arrow skip folders that begin with _ or .",
            "rename the column in Spark.",
        )
    check_may_bury(common, values, problems)
    _check_folders(values, problems)


def _check_folders(values: Mapping[str, Any], problems: Problems) -> None:
    state, path, dead = values["statepath"], values["path"], values["deadletter"]
    if isinstance(dead, Location) and path is not None:
        if dead.bucket != path.bucket:
            problems.add(
                "The options path and deadletter name different buckets.",
                "keep the dead letters in the bucket of the data.",
            )
        elif _is_read_with(dead.folder, path.folder) or path.folder.startswith(dead.folder):
            problems.add(
                "The option deadletter names a folder that readers of the path would read, too.",
                "take one beside it, or one in it whose name begins with _.",
            )
    if state is not None and path is not None and state.bucket != path.bucket:
        problems.add(
            "The options path and statepath name different buckets.",
            "keep the register in the bucket of the data.",
        )


def _is_read_with(folder: str, path: str) -> bool:
    """Whether who reads all files under ``path`` reads those in ``folder``."""
    inside = folder.removeprefix(path).split("/")
    return folder.startswith(path) and not any(name.startswith(("_", ".")) for name in inside)


def check_partitioning(names: tuple[str, ...], columns: list[str]) -> None:
    """Raise ``OptionError`` unless the input has these columns, and one more for the files."""
    unknown = [name for name in names if name not in columns]
    if unknown:
        raise OptionError(
            f"The option partitionby names {', '.join(unknown)}, which the input does not have.",
            remedy=f"the input has {', '.join(columns)}.",
        )
    if names and len(names) == len(columns):
        raise OptionError(
            "The option partitionby names every column: nothing would be left for the files.",
            remedy="leave one out.",
        )
