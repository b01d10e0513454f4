"""The default of the option ``wal`` for streams: ``<checkpoint>/abs/wal``.

Tasks write segments there and the driver reads them, so all must see the same place. For a folder this
is checked: the driver writes an id into it, and an executor that does not find the id (on another
machine without a shared file system) is refused before it writes.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

from abs_core.durable import create_durably
from abs_core.errors import OptionError
from abs_core.wal.folder import ID_FILE
from abs_spark.checkpoint import LOCAL, locate, query_id, split

WAL = "wal"


def with_wal(given: Mapping[str, str], *, started: bool = True) -> Mapping[str, str]:
    """The options, with ``wal`` where ``protocol=wal`` needs it and ``checkpointLocation`` is given.

    Args:
        started: whether Spark has made the checkpoint; if not, nothing is made.

    Raises:
        OptionError: tasks cannot keep a log beside this checkpoint.
    """
    named = {name.lower(): text for name, text in given.items()}
    checkpoint = str(named.get("checkpointlocation") or "").strip()
    if str(named.get("protocol")).strip().lower() != "wal" or WAL in named or not checkpoint:
        return given
    return {**given, WAL: default_wal(checkpoint, started=started)}


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
    return place.read_text()


def _no_place(checkpoint: str, why: str) -> OptionError:
    return OptionError(
        "protocol=wal needs the option wal: segments cannot be kept beside the checkpoint, "
        f"because {checkpoint} {why}.",
        remedy="set wal to a URL that every task and the driver reach: file:///... on a shared file "
        "system, or s3://bucket/prefix.",
    )
