"""Tells errors of this machine, and of the program, from those of a network."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from ssl import SSLError

from abs_core.durable import FULL
from abs_core.errors import RefusedError, TargetError

_OF_FILES = (
    FileNotFoundError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    FileExistsError,
)
_OF_FILES_BY_NUMBER = {*FULL, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP, errno.ENODEV}

_OF_PROGRAMS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    NotImplementedError,
    TypeError,
    ValueError,
)
"""No server's silence is one of these: a library met a value that it cannot handle."""


def local_error(error: BaseException, doing: str, system: str) -> TargetError | None:
    """The project's error if a file or the program is the cause; None if it may be the network.

    Clients wrap whatever ends a request, a file of certificates that is missing among them. A retry
    helps none of these, and "does not answer" would send people to a server that is well.

    Args:
        error: a client's exception. What it carries is looked at, not what was handled before it.
        doing: the action, as the end of a sentence.
        system: as people name it.
    """
    for cause in _causes(error):
        if isinstance(cause, SSLError):
            continue  # one for a certificate is a ValueError, too
        text = " ".join(str(cause).split()).rstrip(".") or type(cause).__name__
        of_a_file = isinstance(cause, OSError) and cause.errno in _OF_FILES_BY_NUMBER
        if isinstance(cause, _OF_FILES) or of_a_file:
            return RefusedError(
                f"A file or a folder of this machine cannot be used while {doing}: {text}.",
                remedy=f"look at the files that the connection to {system} needs (certificates, keys, "
                "a temporary folder), and at the room on the disk.",
            ).of(system)
        if isinstance(cause, _OF_PROGRAMS):
            return TargetError(
                f"The client of {system} failed while {doing}: {type(cause).__name__}: {text}.",
                remedy="this is a defect of the client or of abs-sinks, not an outage: please report "
                "it.",
            ).of(system)
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it carries: its cause, its arguments, and what clients name otherwise."""
    waiting, met = [error], set[int]()
    while waiting:
        cause = waiting.pop()
        if id(cause) in met:
            continue
        met.add(id(cause))
        yield cause
        named = getattr(cause, "kwargs", None)
        carried = [
            cause.__cause__,
            *cause.args,
            getattr(cause, "reason", None),  # urllib3
            named.get("error") if isinstance(named, dict) else None,  # botocore
        ]
        waiting += [inner for inner in carried if isinstance(inner, BaseException)]
