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
    fields_from,
    one_of,
    options_of,
    read_options,
    size,
    whole_number,
)
from abs_clients.s3.location import Location
from abs_clients.s3.server import HADOOP, Server
from abs_core.errors import OptionError
from abs_sinks.lake.fit import CHANGES
from abs_sinks.options import (
    COMMON,
    CommonOptions,
    DeadLetterOptions,
    ToSink,
    check_dead_letters,
    column_names,
    sink_or,
)
from abs_sinks.s3.options import COMPRESSIONS, MIB, MIN_PART, S3Options

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


def _no_place(given: str) -> ToSink:
    raise OptionError(
        f"{given!r} is no sink: a table of the lake has no place of its own for dead letters.",
        remedy="give them to another sink of an abs_spark.epoch: deadletter=sink:NAME.",
    )


_to_sink = sink_or(_no_place)


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeOptions(DeadLetterOptions[ToSink]):
    """How to write data files; where is each format's own. Holds no secret.

    Args:
        common: what every sink takes.
        partitionby: partition columns of a table that is created; an existing one must have the same.
        createtable: create the table where it is missing.
        compression: of the Parquet files.
        schemachange: what to do with a column of the input that the table lacks: ``fail``, ``ignore``
            (its values are not written), ``add`` (it is added).
        deadletter: a sink of the same epoch for rows that the table does not take.
        server: where S3 listens.
        partsize, uploadthreads, rowgroupsize, maxfilesize, maxopenfiles: as for ``abs-s3``.
    """

    common: CommonOptions = field(default_factory=CommonOptions)
    partitionby: Annotated[tuple[str, ...], column_names] = ()
    createtable: Annotated[bool, boolean] = False
    compression: Annotated[str, one_of(*COMPRESSIONS["parquet"])] = "snappy"
    schemachange: Annotated[str, one_of(*CHANGES)] = "fail"
    deadletter: Annotated[ToSink | None, _to_sink] = None
    server: Server = field(default_factory=Server)
    partsize: Annotated[int, size(MIN_PART, 1 << 30)] = 8 * MIB
    uploadthreads: Annotated[int, whole_number(1, 64)] = 4
    rowgroupsize: Annotated[int, size(MIB, 1 << 30)] = 32 * MIB
    maxfilesize: Annotated[int, size(MIB, 1 << 40)] = 1 << 30
    maxopenfiles: Annotated[int, whole_number(1, 1000)] = 8

    @classmethod
    def parse_as(
        cls, name: str, given: Mapping[str, str], *, required: str, prefix: str | None = None
    ) -> Self:
        """Read options as Spark passes them; see ``S3Options.parse``.

        Raises:
            OptionError: lists all unknown, missing, malformed and contradictory options.
        """
        problems = Problems(name)
        known = (*COMMON, *options_of(cls), *options_of(Server))
        values = read_options(given, known, problems, elsewhere=_ELSEWHERE, prefix=prefix)
        if required not in {option.lower() for option in given}:
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
            partsize=self.partsize,
            uploadthreads=self.uploadthreads,
            rowgroupsize=self.rowgroupsize,
            maxfilesize=self.maxfilesize,
            maxopenfiles=self.maxopenfiles,
            deadletter=self.deadletter,
            deadlettermax=self.deadlettermax,
            deadlettercolumns=self.deadlettercolumns,
        )


_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")


def folder_of(given: str) -> str:
    """A table's folder: ``s3://bucket/prefix``, or an absolute path.

    Raises:
        ValueError: it is neither, or it has what libraries and engines take for an escape in a URL:
            then the log and the files would be in different folders.
    """
    path = given.strip()
    if found := _ESCAPE.search(path):
        raise ValueError(f"a path without {found[0]}, which readers decode")
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
