"""What the options of all tables of the lake have in common."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from abs_clients.options import (
    Option,
    Problems,
    boolean,
    described,
    fields_from,
    one_of,
    options_of,
    read_options,
)
from abs_clients.s3.location import Location
from abs_clients.s3.server import HADOOP, Server
from abs_core.errors import OptionError
from abs_sinks.lake.fit import CHANGES
from abs_sinks.options import (
    COMMON,
    CommonOptions,
    ToSink,
    check_dead_letters,
    column_names,
    sink_or,
)
from abs_sinks.s3.options import COMPRESSIONS, S3Options, UploadOptions

if TYPE_CHECKING:
    from abs_sinks.lake.folder import TableFiles
    from abs_sinks.lake.table import LakeTable

_APPEND = (
    "leave it out: this sink only adds rows. Merge changes and upserts into the table by a job of its "
    "own, or write them to a database."
)

_ELSEWHERE = {
    **HADOOP,
    "wal": "leave it out: an epoch is one commit of the table's log.",
    "write": _APPEND,
    "key": _APPEND,
    "mergeSchema": "use schemachange=add.",
    "txnAppId": "leave it out: the register's id is the application's.",
    "txnVersion": "leave it out: the epoch is the version.",
    "maxRecordsPerFile": "use maxfilesize.",
    "fileformat": "leave it out: data files are Parquet.",
}


def _no_place(value: str) -> ToSink:
    raise OptionError(
        f"{value!r} is no sink: a table of the lake has no place of its own for dead letters.",
        remedy="give them to another sink of an abs_spark.epoch: deadletter=sink:NAME.",
    )


_to_sink = sink_or(_no_place)


@described
@dataclass(frozen=True, slots=True, kw_only=True)
class LakeOptions(UploadOptions[ToSink]):
    """How to write data files; where is each format's own. Holds no secret.

    Args:
        common: what every sink takes.
        server: where S3 listens.
    """

    common: CommonOptions = field(default_factory=CommonOptions)
    partitionby: Annotated[
        tuple[str, ...],
        column_names,
        "partition columns of a table that is created; an existing table must have the same",
    ] = ()
    createtable: Annotated[bool, boolean, "create the table if it is missing"] = False
    compression: Annotated[
        str,
        one_of(*COMPRESSIONS["parquet"]),
        "of the Parquet files: `snappy` (default), `zstd`, `gzip`, `lz4`, `brotli`, `none`",
    ] = "snappy"
    schemachange: Annotated[
        str,
        one_of(*CHANGES),
        "columns of the input that the table lacks: `fail` (default), `ignore` them, or "
        "`add` them to the table",
    ] = "fail"
    deadletter: Annotated[
        ToSink | None,
        _to_sink,
        "in `abs_spark.epoch`: another sink (`sink:NAME`) for rows that the table does "
        "not take; see [dead letters](dead-letters.md)",
    ] = None
    server: Server = field(default_factory=Server)

    @classmethod
    def parse_as(
        cls, name: str, options: Mapping[str, str], *, required: str, prefix: str | None = None
    ) -> Self:
        """Read options as Spark passes them; see ``S3Options.parse``.

        Raises:
            OptionError: lists all unknown, missing, malformed and contradictory options.
        """
        problems = Problems(name)
        declared = (*COMMON, *options_of(cls), *options_of(Server))
        values = read_options(options, declared, problems, elsewhere=_ELSEWHERE, prefix=prefix)
        if required not in {option.lower() for option in options}:
            problems.add(f"The option {required} is missing.", "give it.")
        if values["protocol"] != "2pc":
            problems.add(
                f"The sink has no protocol {values['protocol']}: an epoch is one commit of the table's "
                "log.",
                "use 2pc, or leave it out; for larger files use the table's own compaction.",
            )
        cls._check(values, problems)
        check_dead_letters(values, problems)
        problems.raise_any()
        return cls(
            common=CommonOptions.of(values), server=Server.of(values), **fields_from(cls, values)
        )

    @classmethod
    def _check(cls, values: Mapping[str, Any], problems: Problems) -> None:
        """Note what one format's own options contradict."""

    @property
    def address(self) -> LakeTable:
        """The table."""
        raise NotImplementedError

    def place(self, snapshot: Any) -> TableFiles | None:
        """Where the table's data files are; None: it is not known before there is a table."""
        raise NotImplementedError

    def files(self, folder: str, partitions: Sequence[str] = ()) -> S3Options:
        """The options of the data files.

        Args:
            folder: ``s3://bucket/prefix``, or a local path: then keys are relative to it.
        """
        local = not folder.startswith("s3")
        return S3Options(
            path=Location("", "") if local else Location.parse(folder),
            common=self.common,
            partitionby=tuple(partitions),
            compression=self.compression,
            server=self.server,
            **self.uploads,
        )


_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")


def folder_of(value: str) -> str:
    """A table's folder: ``s3://bucket/prefix``, or an absolute path.

    Raises:
        ValueError: it is neither, or it has what libraries and engines take for an escape in a URL:
            then the log and the files would be in different folders.
    """
    path = value.strip()
    if escape := _ESCAPE.search(path):
        raise ValueError(f"a path without {escape[0]}, which readers decode")
    if path.split("://")[0] in ("s3", "s3a", "s3n"):
        try:
            return str(Location.parse(path))
        except OptionError as error:
            raise ValueError(f"{error.remedy} ({error.what})") from error
    path = path.removeprefix("file://")
    if not path.startswith("/"):
        raise ValueError("s3://bucket/prefix, or an absolute path that all processes see")
    return str(Path(path))


FOLDER = Option("path", folder_of)
