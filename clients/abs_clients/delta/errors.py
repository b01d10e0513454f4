"""Maps what deltalake raises; never shows its options (I9)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    DeltaProtocolError,
    SchemaMismatchError,
    TableNotFoundError,
)

from abs_clients.causes import name_open_files
from abs_clients.tablelog import DEFECT
from abs_core.durable import disk_error
from abs_core.errors import AbsError, RefusedError, TargetError, UnavailableError

# The library tells what a store answers, and that it answers nothing, by the text of an OSError alone,
# and at times of a DeltaError.
_COLOUR = re.compile(r"\x1b\[\d+m")
_STATUS = re.compile(r"non-2xx status code\W+(\d{3})")
_ERRNO = re.compile(r"os error (\d+)")
_SILENT = re.compile(r"HTTP error|error sending request|timed out|connection closed")
_BUSY = {408, 409, 412, 429}
"""Statuses, besides those from 500 on, after which a look tells the outcome."""


@contextmanager
def mapped(doing: str) -> Iterator[None]:
    """Maps every exception: to ``UnavailableError`` only what a network or a busy server raises.

    Raises:
        RefusedError: the store or the library answers, and refuses.
        UnavailableError: the store does not answer; the outcome may be unknown.
        TargetError: an exception that is in no list here: a defect, which a retry does not mend.
        deltalake's CommitFailedError: another writer was first, or the reply was lost.
    """
    try:
        yield
    except (AbsError, CommitFailedError):
        raise
    except TableNotFoundError as error:
        raise RefusedError(
            f"There is no Delta table: {doing}.", remedy="create it, or set createtable=true."
        ) from error
    except (DeltaProtocolError, SchemaMismatchError) as error:
        raise RefusedError(
            f"deltalake refuses {doing}: {text_of(error)}.",
            remedy="write to a table without such features.",
        ) from error
    except (DeltaError, OSError) as error:
        raise _of_store(error, doing) from error
    except BaseException as error:
        # A panic of the library is no Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise _defect(error, doing) from error


def _of_store(error: Exception, doing: str) -> AbsError:
    text = _COLOUR.sub("", str(error))
    if "catalog-managed" in text:
        return RefusedError(
            f"The table's commits are managed by a catalog, {doing}.",
            remedy="write to a table without the feature catalogManaged.",
        )
    if status := _STATUS.search(text):
        number = int(status[1])
        if number >= 500 or number in _BUSY:
            return UnavailableError(f"The store does not answer, {doing}: status {number}.")
        return RefusedError(
            f"The store refuses, {doing}: status {number}, {text_of(error)}.",
            remedy="look at the path, and at the credentials and rights of this process.",
        )
    if _SILENT.search(text):
        silent = UnavailableError(f"The store does not answer, {doing}: {text_of(error)}.")
        return name_open_files(silent, error)
    if is_missing(error):
        return RefusedError(
            f"A file of the table's log is gone, {doing}: {text_of(error)}.",
            remedy="look who has removed it: a clean-up must keep what the log needs.",
        )
    if match := _ERRNO.search(text):
        return disk_error(OSError(int(match[1]), text_of(error)), "The table's store", doing)
    return _defect(error, doing)


def is_missing(error: Exception) -> bool:
    """Whether a file is gone that the log, as it was listed, had."""
    return isinstance(error, FileNotFoundError) or "not found" in str(error).lower()


def _defect(error: BaseException, doing: str) -> TargetError:
    problem = f"{type(error).__name__}: {text_of(error)}"
    return TargetError(f"An unexpected error, {doing}: {problem}.", remedy=f"{DEFECT}.")


def text_of(error: BaseException) -> str:
    """The first line of a message, without the arrows of the others."""
    return str(error).strip().splitlines()[0].strip().rstrip(".") if str(error).strip() else ""
