"""Reads a query's id and its epochs' input descriptions from its checkpoint.

If the checkpoint cannot be read, a replayed epoch is recognised by its rows. Once this process has read
a checkpoint, a later failure is an error: it must not weaken a comparison of inputs to one of row
counts.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from abs_core.errors import OptionError, UnavailableError
from abs_core.patience import DEFAULT_PATIENCE, Patience
from abs_core.strictjson import fields, parse, text, whole

LOCAL = "file"
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(.*)", re.DOTALL)
DBFS, VOLUMES = Path("/dbfs"), Path("/Volumes")
_S3 = {"s3a": "s3", "s3n": "s3"}


FAILURES = (OSError, pa.ArrowException, ValueError, ImportError)
"""The exceptions of a file system, and of pyarrow where it does not support one."""


def fingerprint(
    checkpoint: str | None,
    epoch: int,
    patience: Patience = DEFAULT_PATIENCE,
) -> str | None:
    """See ``input_of``."""
    return input_of(checkpoint, epoch, patience)[0]


def input_of(
    checkpoint: str | None,
    epoch: int,
    patience: Patience = DEFAULT_PATIENCE,
) -> tuple[str | None, int | None]:
    """Digest of the input description that Spark wrote before the epoch began (``offsets/N``).

    Spark writes that file once and reads it again on a replay, so equal digests mean equal input
    ranges. The digest excludes the location, which Spark writes in several spellings.

    Args:
        checkpoint: the option ``checkpointLocation``; None if unknown.
        patience: for retries of a checkpoint that was readable before.

    Returns:
        ``sha256:hex``, or None if the file is missing, or was never readable from here; and when Spark
        had asked the sources for it, in milliseconds since 1970, if the file tells.

    Raises:
        UnavailableError: the checkpoint was readable before, and is not now.
    """
    content = with_checkpoint(patience).retry(lambda: _read(checkpoint, f"offsets/{epoch}"))
    if checkpoint and content is not None:
        note_readable(checkpoint)
    if content is None:
        return None, None
    return f"sha256:{hashlib.sha256(content).hexdigest()}", _asked_at(content)


def _asked_at(content: bytes) -> int | None:
    try:
        return whole(fields(parse(content.splitlines()[1]))["batchTimestampMs"])
    except (IndexError, ValueError):
        return None


def offsets(checkpoint: str, epoch: int) -> tuple[Any, ...]:
    """Where the input of an epoch ends, by source, as the options of a batch read take it.

    Empty where the checkpoint does not tell it, as before the first epoch.
    """
    content = _read(checkpoint, f"offsets/{epoch}") or b""
    lines = content.decode(errors="replace").splitlines()[
        2:
    ]  # after the version and what else the epoch knows
    return tuple(None if line == "-" else _as_option(parse(line)) for line in lines)


def _as_option(document: Any) -> Any:
    """Of ``abs-kafka`` as of Spark's own source: partitions and offsets by topic."""
    if isinstance(document, dict) and all(
        isinstance(of, dict) and "offsets" in of for of in document.values()
    ):
        return {topic: of["offsets"] for topic, of in document.items()}
    return document


def query_id(checkpoint: str | None) -> str | None:
    """The id of the query that owns the checkpoint; None if it cannot be read from here."""
    for _ in range(2):
        try:
            content = _read(checkpoint, "metadata")
            return None if content is None else text(fields(parse(content))["id"])
        except UnavailableError:
            continue  # a second attempt has shown that it can be read
        except ValueError:
            return None
    return None


def is_stateless(checkpoint: str) -> bool:
    """Whether the query has no stateful operator; False if unknown."""
    is_without_state = _kind_of(checkpoint, "state") is fs.FileType.NotFound
    return is_without_state and query_id(checkpoint) is not None


def check_holds_query(checkpoint: str, real: str | None) -> None:
    """Refuse a location that can be read and holds no query's checkpoint.

    A path without a scheme can be in Spark's default file system, which is not read here.

    Args:
        real: where the calling query has its checkpoint; None if Spark does not tell.

    Raises:
        OptionError: names both locations.
    """
    if any(
        _kind_of(checkpoint, name) is not fs.FileType.NotFound for name in ("offsets", "metadata")
    ):
        return
    if _URI.fullmatch(checkpoint) or (real is not None and split(real)[0] == LOCAL):
        raise OptionError(
            f"The function was given checkpointLocation={checkpoint}, which is not a query's "
            f"checkpoint: it has neither offsets nor metadata. This query's is "
            f"{real or 'at another location'}.",
            remedy="give it the same checkpointLocation as the query's own option.",
        )


_readable: set[str] = set()


def is_readable(checkpoint: str | None) -> bool:
    """Whether ``fingerprint`` will find an epoch's file; success is remembered.

    It looks for the query's id, which Spark writes before the first epoch.
    """
    if checkpoint is None:
        return False
    if checkpoint not in _readable and query_id(checkpoint) is not None:
        note_readable(checkpoint)
    return checkpoint in _readable


def note_readable(checkpoint: str) -> None:
    """Remember that this checkpoint is readable: later failures are errors."""
    _readable.add(checkpoint)


def check_never_readable(checkpoint: str, error: Exception) -> None:
    """After a failed read, check that this process never could read the checkpoint.

    It tries once more, as the failed read may be the first of this process.

    Raises:
        UnavailableError: it could, or can now; a retry may succeed.
    """
    if checkpoint in _readable or _kind_of(checkpoint, "metadata") is fs.FileType.File:
        note_readable(checkpoint)
        raise UnavailableError(
            f"Spark's checkpoint could be read before, and cannot be read now: {str(error)[:200]}.",
            remedy="check that the driver reaches its file system, then restart the query.",
        ) from error


def _kind_of(checkpoint: str, name: str) -> fs.FileType | None:
    """What has this name in the checkpoint; None if that cannot be found out."""
    try:
        filesystem, path = locate(checkpoint)
        return filesystem.get_file_info(f"{path}/{name}").type
    except FAILURES:
        return None


def with_checkpoint(patience: Patience) -> Patience:
    """The same patience with the checkpoint's file system as the system."""
    return replace(patience, system="Spark's checkpoint")


@lru_cache(maxsize=64)
def locate(checkpoint: str) -> tuple[fs.FileSystem, str]:
    """The file system and the path on it, without a slash at its end, for any of Spark's spellings.

    A path without scheme is local; it is not found if Spark's default file system is another one.
    Databricks' own file system is read where it is mounted.
    Cached per process, as some file systems take seconds to set up.
    """
    scheme, rest = split(checkpoint)
    local = rest if scheme == LOCAL else _mounted(scheme, rest)
    if local is not None:
        return fs.LocalFileSystem(), str(Path(local).absolute()).rstrip("/")
    filesystem, path = fs.FileSystem.from_uri(f"{scheme}:{rest}")
    return filesystem, path.rstrip("/")


def _mounted(scheme: str, rest: str) -> str | None:
    """Where Databricks has a location of its own file system as a folder; None if that is not here.

    ``dbfs:/x`` is ``/dbfs/x``, and ``dbfs:/Volumes/x`` is ``/Volumes/x``.
    """
    if scheme != "dbfs":
        return None
    path = "/" + rest.lstrip("/")
    mount, local = (VOLUMES, path) if path.startswith(f"{VOLUMES}/") else (DBFS, f"{DBFS}{path}")
    return local if mount.is_dir() else None


def split(checkpoint: str) -> tuple[str, str]:
    """The normalised scheme, and the part after its colon (for ``LOCAL`` the path)."""
    matched = _URI.fullmatch(checkpoint)
    if matched is None:
        return LOCAL, checkpoint
    scheme, rest = matched[1].lower(), matched[2]
    if scheme == LOCAL:
        # file:/p, file:///p and file://host/p are all in use.
        return LOCAL, "/" + re.sub(r"^//[^/]*", "", rest).lstrip("/")
    return _S3.get(scheme, scheme), rest


def _read(checkpoint: str | None, name: str) -> bytes | None:
    """A file of the checkpoint; None if it is missing, or was never readable.

    Raises:
        UnavailableError: the checkpoint was readable before.
    """
    if not checkpoint:
        return None
    try:
        filesystem, path = locate(checkpoint)
        with filesystem.open_input_stream(f"{path}/{name}") as file:
            return bytes(file.read())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except FAILURES as error:
        check_never_readable(checkpoint, error)
        return None
