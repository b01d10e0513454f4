"""Maps what pyiceberg and the libraries below it raise; never shows the catalog's properties (I9)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    OAuthError,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    SignError,
    TooManyRequestsError,
    UnauthorizedError,
    WaitingForLockException,
)
from requests.exceptions import RequestException

from abs_clients.causes import name_open_files
from abs_clients.s3.errors import to_abs_error
from abs_clients.tablelog import DEFECT
from abs_core.durable import disk_error
from abs_core.errors import AbsError, RefusedError, TargetError, UnavailableError


class ConflictError(Exception):
    """The catalog says that the table has moved; the commit may have been what moved it."""


_SILENT = (
    AuthorizationExpiredError,  # the next call asks for a new token
    CommitStateUnknownException,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    WaitingForLockException,
    RequestException,
)
"""The catalog does not answer; a commit's outcome is unknown."""

_REFUSED = (
    BadRequestError,
    ForbiddenError,
    OAuthError,
    SignError,
    UnauthorizedError,
    RESTError,  # what is left of it: an answer that is not one of a fault of the server's
)

_DATABASE_SILENT = ("DisconnectionError", "InterfaceError", "OperationalError", "TimeoutError")
"""Likewise of the database of an SQL catalog; every other error of it is a refusal."""

_BUSY = re.compile(
    r"AWS Error (NETWORK_CONNECTION|SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|THROTTLING|"
    r"REQUEST_TIMEOUT|REQUEST_EXPIRED)|HTTP status (408|429|5\d\d)"
)
"""Arrow tells by an OSError's text alone what a bucket answers, and that it answers nothing."""


@contextmanager
def mapped(doing: str) -> Iterator[None]:
    """Maps every exception: to ``UnavailableError`` only what a network or a busy server raises.

    Raises:
        RefusedError: the catalog or the store answers, and refuses.
        UnavailableError: it does not answer; the outcome may be unknown.
        TargetError: an exception that is in no list here: a defect, which a retry does not mend.
    """
    try:
        yield
    except (AbsError, ConflictError):
        raise
    except NoSuchTableError as error:
        raise RefusedError(
            f"There is no Iceberg table: {doing}.", remedy="create it, or set createtable=true."
        ) from error
    except NoSuchNamespaceError as error:
        raise RefusedError(
            f"The namespace does not exist: {doing}.", remedy="create it in the catalog."
        ) from error
    except Exception as error:
        raise _mapped(error, doing) from error


def _mapped(error: Exception, doing: str) -> AbsError:
    text = f"{doing}: {type(error).__name__}"
    if isinstance(error, _SILENT + _of_sql(*_DATABASE_SILENT)) or _is_of_hive(error):
        silent = UnavailableError(f"The catalog does not answer, {text}.")
        return silent if isinstance(error, RESTError) else name_open_files(silent, error)
    if isinstance(error, _REFUSED + _of_sql("SQLAlchemyError")):
        remedy = "look at its credentials and rights, and at its own log."
        return RefusedError(f"The catalog refuses, {text}.", remedy=remedy)
    if isinstance(error, ClientError | BotoCoreError):  # Glue's
        of_aws = to_abs_error(error, doing)
        how = "does not answer" if of_aws.retryable else "refuses"
        return type(of_aws)(f"The catalog {how}, {text}: {text_of(error)}.", remedy=of_aws.remedy)
    if isinstance(error, OSError):
        return _of_store(error, doing)
    return TargetError(f"An unexpected error, {text}: {text_of(error)}.", remedy=f"{DEFECT}.")


def _of_store(error: OSError, doing: str) -> AbsError:
    """Of Arrow's file systems, for a folder and for a bucket."""
    text = text_of(error)
    if isinstance(error, FileNotFoundError):
        remedy = "look who has removed it: a clean-up must keep what the metadata names."
        return RefusedError(f"A file of the table is gone, {doing}: {text}.", remedy=remedy)
    if "AWS Error" in text and not _BUSY.search(text):
        remedy = "look at the credentials and rights of this process."
        return RefusedError(f"The store refuses, {doing}: {text}.", remedy=remedy)
    return disk_error(error, "The table's store", doing)


def _of_sql(*names: str) -> tuple[type[Exception], ...]:
    """Exceptions of sqlalchemy, which only an SQL catalog loads: nobody else can have raised them."""
    loaded = sys.modules.get("sqlalchemy.exc")
    return () if loaded is None else tuple(getattr(loaded, name) for name in names)


def _is_of_hive(error: Exception) -> bool:
    """Thrift is there with the extra for Hive alone."""
    return any(kind.__name__ == "TTransportException" for kind in type(error).__mro__)


def text_of(error: Exception) -> str:
    """The first line of a message."""
    lines = str(error).strip().splitlines()
    return lines[0].strip().rstrip(".") if lines else ""
