"""A query's target: format, parsed options, and the schema of the input.

A stream with ``protocol=wal`` has its log in ``<checkpoint>/abs/wal`` by default. Tasks write segments
there and the driver reads them, so all must see the same place. For a folder this is checked: the
driver writes an id into it, and an executor that does not find the id (on another machine without a
shared file system) is refused before it writes.
"""

from __future__ import annotations

import secrets
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from abs_core.contracts import Sink
from abs_core.durable import create_durably, flush_folder
from abs_core.errors import AbsError, OptionError
from abs_core.model import Guarantee
from abs_core.several import SinkGroup
from abs_core.wal.folder import ID_FILE
from abs_sinks.door import Options, SinkFormat, format_named
from abs_spark.checkpoint.spark_files import LOCAL, locate, query_id, split


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """Builds the same sink in any process of the query.

    It is pickled to the executors, credentials included, as any Spark connector's options are; it is
    never in a plan, a message or a log.
    """

    format: SinkFormat
    options: Options
    schema: pa.Schema

    def sink(self, *, alone: bool = True) -> Sink:
        """A new sink; the caller closes it.

        Args:
            alone: whether it is the only one of its job, whose register it then has.

        Raises:
            OptionError: it can only be alone.
        """
        sink = self.format.sink(self.options, self.schema, alone=alone)
        if not alone and sink.committer().co_commits:
            sink.close()
            raise OptionError(
                f"The sink {self.format.name} commits rows and register in one transaction, and cannot "
                "be used together with other sinks.",
                remedy="use it alone, or with another protocol of it.",
            )
        return sink

    @property
    def transactions(self) -> Hashable | None:
        """Targets for which it is equal, and not None, can share transactions."""
        sharing = self.format.sharing()
        shared = None if sharing is None else sharing.transactions(self.options)
        return None if shared is None else (self.format.name, shared)


def parse(format_: SinkFormat, options: Mapping[str, str], *, started: bool = True) -> Any:
    """The options of a job, with the log of a stream (``with_wal``).

    Args:
        started: whether Spark has made the checkpoint.

    Raises:
        OptionError: lists everything that is wrong.
    """
    return format_.parse(with_wal(options, started=started) if format_.segments_beside else options)


def described(format_: str, options: Mapping[str, str]) -> str:
    """A sink's target and guarantee, as far as its options tell them; no secret (I9)."""
    try:
        kind = format_named(format_)
        parsed = parse(kind, options)
        promise = kind.guarantee(parsed)
    except AbsError as error:
        return f"its options cannot be used: {error.what}"
    return f"{kind.where(parsed)}: {promised(promise)}"


def promised(promise: Guarantee) -> str:
    """What a sink promises, in one line."""
    how = f"protocol {promise.protocol}, write {promise.write}"
    return f"every row {promise.times} ({how}); visible {promise.visibility}"


def groups(targets: Mapping[int, SinkSpec]) -> list[tuple[int, ...]]:
    """The numbers of the targets, grouped by shared transactions; each group has at least two."""
    fellows: dict[Hashable, list[int]] = {}
    for number, target in sorted(targets.items()):
        if target.transactions is not None:
            fellows.setdefault(target.transactions, []).append(number)
    return [tuple(numbers) for numbers in fellows.values() if len(numbers) > 1]


def commit_at_once(targets: Sequence[SinkSpec]) -> bool:
    """Whether the commit process has one transaction for all rows, and for the register's change."""
    numbered = dict(enumerate(targets))
    if len(numbered) < 2:
        return True
    return groups(numbered) == [tuple(numbered)] and not group_of(numbered).by_task


def group_of(targets: Mapping[int, SinkSpec]) -> SinkGroup:
    """The group of targets that share transactions, by number."""
    sharing = next(iter(targets.values())).format.sharing()
    assert sharing is not None, "they share transactions"
    return sharing.group(
        {number: (target.options, target.schema) for number, target in targets.items()}
    )


WAL = "wal"


def with_wal(options: Mapping[str, str], *, started: bool = True) -> Mapping[str, str]:
    """The options, with ``wal`` where ``protocol=wal`` needs it and ``checkpointLocation`` is given.

    Args:
        started: whether Spark has made the checkpoint; if not, nothing is made.

    Raises:
        OptionError: tasks cannot keep a log beside this checkpoint.
    """
    named = {name.lower(): text for name, text in options.items()}
    checkpoint = str(named.get("checkpointlocation") or "").strip()
    if str(named.get("protocol")).strip().lower() != "wal" or WAL in named or not checkpoint:
        return options
    return {**options, WAL: default_wal(checkpoint, started=started)}


def default_wal(checkpoint: str, *, started: bool = True) -> str:
    """The URL of the log beside a checkpoint.

    Raises:
        OptionError: the checkpoint is neither in S3 nor in a folder of this machine.
    """
    scheme, rest = split(checkpoint)
    if scheme == "s3":
        return f"s3://{rest.strip('/')}/abs/wal"
    if scheme != LOCAL:
        raise _no_place(checkpoint, f"is in a file system ({scheme}) that cannot hold segments")
    folder = Path(f"{locate(checkpoint)[1]}/abs/{WAL}")
    if not started:
        return folder.as_uri()
    if query_id(checkpoint) is None:
        raise _no_place(checkpoint, "is no folder that the driver can read")
    try:
        return f"{folder.as_uri()}#{_id_of(folder)}"
    except OSError as error:
        raise _no_place(checkpoint, f"cannot be written to by the driver ({error})") from error


def _id_of(folder: Path) -> str:
    """The folder's id, which the first call makes."""
    place = folder / ID_FILE
    if not place.exists():
        # Where another process is first, its id counts.
        create_durably(place, secrets.token_hex(8).encode(), private=False)
    else:
        flush_folder(folder)  # who made it may have died between link and flush
    return place.read_text()


def _no_place(checkpoint: str, why: str) -> OptionError:
    return OptionError(
        "protocol=wal needs the option wal: segments cannot be kept beside the checkpoint, "
        f"because {checkpoint} {why}.",
        remedy="set wal to a URL that every task and the driver reach: file:///... on a shared file "
        "system, or s3://bucket/prefix.",
    )
