"""What a query's checkpoint tells: its id, and what each epoch's input was.

Reading is best effort and never needed for safety alone: where the checkpoint cannot be read, a
replayed epoch is recognised by its rows.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from abs_core.strictjson import fields, parse, text

LOCAL = "file"
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(.*)", re.DOTALL)
_S3 = {"s3a": "s3", "s3n": "s3"}


def fingerprint(checkpoint: str | None, epoch: int) -> str | None:
    """Digest of the input description that Spark wrote before the epoch began (``offsets/N``).

    Spark writes that file once and reads it again on a replay, so equal digests mean equal input
    ranges. The location is no part of it: Spark spells the same one in several ways.

    Args:
        checkpoint: the option ``checkpointLocation``; None where the query does not tell.

    Returns:
        ``sha256:hex``, or None where the file cannot be read from here.
    """
    content = _read(checkpoint, f"offsets/{epoch}")
    return None if content is None else f"sha256:{hashlib.sha256(content).hexdigest()}"


def query_id(checkpoint: str | None) -> str | None:
    """The id of the query that owns the checkpoint; None where it cannot be read from here."""
    content = _read(checkpoint, "metadata")
    if content is None:
        return None
    try:
        return text(fields(parse(content))["id"])
    except ValueError:
        return None


def is_stateless(checkpoint: str) -> bool:
    """Whether no operator of the query has kept state there; False where that cannot be told."""
    try:
        filesystem, path = locate(checkpoint)
        found = filesystem.get_file_info(f"{path.rstrip('/')}/state")
    except (OSError, pa.ArrowException, ValueError, ImportError):
        return False
    return found.type is fs.FileType.NotFound and query_id(checkpoint) is not None


_readable: set[str] = set()


def is_readable(checkpoint: str | None) -> bool:
    """Whether ``fingerprint`` will find an epoch's file; that it could once is remembered.

    Spark writes the query's id there before its first epoch.
    """
    if checkpoint is None:
        return False
    if checkpoint not in _readable and query_id(checkpoint) is not None:
        _readable.add(checkpoint)
    return checkpoint in _readable


@lru_cache(maxsize=64)
def locate(checkpoint: str) -> tuple[fs.FileSystem, str]:
    """The file system and the path on it, for any of Spark's spellings.

    A path without scheme is taken as local; where Spark's default file system is another one it
    will just not be found. Kept per process: some file systems take seconds to set up.
    """
    scheme, rest = split(checkpoint)
    if scheme == LOCAL:
        return fs.LocalFileSystem(), str(Path(rest).absolute())
    filesystem, path = fs.FileSystem.from_uri(f"{scheme}:{rest}")
    return filesystem, path


def split(checkpoint: str) -> tuple[str, str]:
    """The scheme, one for all that mean the same, and what follows its colon; of ``LOCAL`` the path."""
    matched = _URI.fullmatch(checkpoint)
    if matched is None:
        return LOCAL, checkpoint
    scheme, rest = matched[1].lower(), matched[2]
    if scheme == LOCAL:
        # file:/p, file:///p and file://host/p are all in use.
        return LOCAL, "/" + re.sub(r"^//[^/]*", "", rest).lstrip("/")
    return _S3.get(scheme, scheme), rest


def _read(checkpoint: str | None, name: str) -> bytes | None:
    if not checkpoint:
        return None
    try:
        filesystem, path = locate(checkpoint)
        with filesystem.open_input_stream(f"{path.rstrip('/')}/{name}") as file:
            return bytes(file.read())
    except (OSError, pa.ArrowException, ValueError, ImportError):
        return None
