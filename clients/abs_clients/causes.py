"""Tells errors of this machine, and of the program, from those of a network."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from socket import gaierror
from ssl import SSLError

from abs_core.durable import FULL, NO_HANDLE_LEFT, RAISE_FILES
from abs_core.errors import AbsError, RefusedError, TargetError, UnavailableError

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


_WORDS = tuple(map(os.strerror, NO_HANDLE_LEFT))
"""How the system says that no file can be opened."""


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


def name_open_files(error: AbsError, cause: BaseException | None) -> AbsError:
    """The error of an outage, with its remedy if this process can open no more files.

    For errors of a client that nobody has answered: a server's own lack of files is another.

    Args:
        error: ours, with the text of the cause. No variable of the frame that raises it: each would
            keep the other, and what has failed by it, until garbage is collected.
        cause: the client's exception; None where it gives no more than a text.
    """
    if isinstance(error, UnavailableError) and _lacks_files(error.what, cause):
        error.what += " This process can open no more files."
        error.remedy = RAISE_FILES
    return error


def _lacks_files(text: str, cause: BaseException | None) -> bool:
    """Whether no file could be opened, by the number that the system gave, or by its words.

    Where a library passes on neither, a file is opened to find out. Another thread may have closed one
    meanwhile: then it is not told.
    """
    numbers = [] if cause is None else [*filter(None, map(_number, _causes(cause)))]
    if numbers:
        return any(number in NO_HANDLE_LEFT for number in numbers)
    return any(words in text for words in _WORDS) or _no_file_left()


def _number(cause: BaseException) -> int | None:
    """The system's number of an error; None for the numbers of OpenSSL and of a name's look-up."""
    if not isinstance(cause, OSError) or isinstance(cause, SSLError | gaierror):
        return None
    return cause.errno


def _no_file_left() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in NO_HANDLE_LEFT
    return False


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
