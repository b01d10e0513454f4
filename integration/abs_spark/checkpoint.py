"""What a query's checkpoint tells: its id, and what each epoch's input was.

Reading is best effort and never needed for safety alone: where the checkpoint cannot be read, a
replayed epoch is recognised by its rows. But one that could be read is read: that an answer fails to
come must not turn a comparison of inputs into one of row counts.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from abs_core.errors import UnavailableError
from abs_core.patience import DEFAULT_PATIENCE, Patience
from abs_core.strictjson import fields, parse, text

LOCAL = "file"
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(.*)", re.DOTALL)
_S3 = {"s3a": "s3", "s3n": "s3"}


FAILURES = (OSError, pa.ArrowException, ValueError, ImportError)
"""What a file system raises; also where pyarrow has none of that kind."""


def fingerprint(
    checkpoint: str | None,
    epoch: int,
    patience: Patience = DEFAULT_PATIENCE,
    *,
    readable: bool = False,
) -> str | None:
    """Digest of the input description that Spark wrote before the epoch began (``offsets/N``).

    Spark writes that file once and reads it again on a replay, so equal digests mean equal input
    ranges. The location is no part of it: Spark spells the same one in several ways.

    Args:
        checkpoint: the option ``checkpointLocation``; None where the query does not tell.
        patience: for how long one that could be read is tried again.
        readable: whether another process of this query could read it.

    Returns:
        ``sha256:hex``, or None where the file is not there, or could never be read from here.

    Raises:
        UnavailableError: the checkpoint could be read before, and cannot be now.
    """
    if checkpoint and readable:
        note_readable(checkpoint)
    content = with_checkpoint(patience).retry(lambda: _read(checkpoint, f"offsets/{epoch}"))
    if checkpoint and content is not None:
        note_readable(checkpoint)
    return None if content is None else f"sha256:{hashlib.sha256(content).hexdigest()}"


def query_id(checkpoint: str | None) -> str | None:
    """The id of the query that owns the checkpoint; None where it cannot be read from here."""
    try:
        content = _read(checkpoint, "metadata")
    except UnavailableError:  # it can be read, as a second look has told
        try:
            content = _read(checkpoint, "metadata")
        except UnavailableError:
            return None
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
    except FAILURES:
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
        note_readable(checkpoint)
    return checkpoint in _readable


def note_readable(checkpoint: str) -> None:
    """From now on it is an error where this checkpoint cannot be read."""
    _readable.add(checkpoint)


def check_never_readable(checkpoint: str, error: Exception) -> None:
    """Where a read has failed: that this process has never read the checkpoint, and cannot now.

    It looks once more: the first read of a process may be the one that fails.

    Raises:
        UnavailableError: it has, or can: this may pass.
    """
    if checkpoint in _readable or _is_there(checkpoint):
        raise UnavailableError(
            f"Spark's checkpoint could be read before, and cannot be now: {str(error)[:200]}.",
            remedy="see that the driver reaches its file system, then restart the query.",
        ) from error


def _is_there(checkpoint: str) -> bool:
    """Whether Spark's own file can be seen there now; that it can is remembered."""
    try:
        filesystem, path = locate(checkpoint)
        found = filesystem.get_file_info(f"{path.rstrip('/')}/metadata")
    except FAILURES:
        return False
    if found.type is not fs.FileType.File:
        return False
    note_readable(checkpoint)
    return True


def with_checkpoint(patience: Patience) -> Patience:
    """The same patience, with the checkpoint's file system."""
    return replace(patience, system="Spark's checkpoint")


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
    """A file of the checkpoint; None where it is not there, or could never be read.

    Raises:
        UnavailableError: the checkpoint could be read before.
    """
    if not checkpoint:
        return None
    try:
        filesystem, path = locate(checkpoint)
        with filesystem.open_input_stream(f"{path.rstrip('/')}/{name}") as file:
            return bytes(file.read())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except FAILURES as error:
        check_never_readable(checkpoint, error)
        return None
