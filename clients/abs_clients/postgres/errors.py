"""Maps the driver's exceptions to the project's own, by SQLSTATE (manual, appendix A).

The server's primary message is kept, for bad values only up to the first quote: the value follows.
DETAIL is kept only for a violated constraint: other details, and CONTEXT, can contain whole rows. No
message of libpq or the server contains a password; statements are never quoted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from abs_clients.causes import local_error, name_open_files
from abs_core.errors import (
    AbsError,
    ContentionError,
    CorruptionError,
    RefusedError,
    RowError,
    SchemaError,
    TargetError,
    UnavailableError,
)

_Mapped = tuple[type[AbsError], str]

SYSTEM = "PostgreSQL"

STANDBY = "SyncRep"
"""The wait event of a commit that waits for a synchronous standby."""

_BY_STATE: dict[str, _Mapped] = {
    # Single states go before their class.
    "22P04": (TargetError, "this is a defect of the sink's encoder: please report it."),
    "25P03": (UnavailableError, "let Spark retry the task: its process had stopped for a while."),
    "25P04": (ContentionError, "raise transaction_timeout for the role."),
    "25006": (RefusedError, "connect to the primary, with a role that may write."),
    "40002": (RefusedError, "the input violates a constraint of the table; correct one of them."),
    "42501": (RefusedError, "grant the role the missing rights; `abs doctor` lists them."),
    "42P01": (SchemaError, "check whether the table was dropped or renamed."),
    "42703": (SchemaError, "the table was altered; restart the query."),
    "42804": (SchemaError, "the table was altered; restart the query."),
    "53100": (RefusedError, "the server's disk is full: make room, then restart."),
    "55P03": (ContentionError, "pg_locks and `abs in-doubt list` show who holds the lock."),
    "55006": (ContentionError, ""),
    "57014": (ContentionError, "raise statement_timeout if that was the cause."),
    "58P01": (CorruptionError, "see the server's log; restore the server from a backup."),
    "XX001": (CorruptionError, "see the server's log; restore the server from a backup."),
    "XX002": (CorruptionError, "see the server's log; rebuild the index."),
}

_BY_CLASS: dict[str, _Mapped] = {
    "08": (UnavailableError, ""),
    "0A": (RefusedError, ""),
    "0B": (RefusedError, ""),
    "21": (RefusedError, ""),
    "22": (RowError, "correct the input, or the column's type."),
    "23": (RefusedError, "the input violates a constraint of the table; correct one of them."),
    "25": (TargetError, ""),
    "28": (RefusedError, "check the options user and password, and the server's pg_hba.conf."),
    "3D": (RefusedError, "check the database in the option url."),
    "3F": (SchemaError, "check the schema in the option dbtable."),
    "40": (ContentionError, ""),
    "42": (RefusedError, ""),
    "44": (RefusedError, "the input violates a constraint of the table; correct one of them."),
    "53": (UnavailableError, "the server is out of a resource: see its hint and its log."),
    "54": (RefusedError, ""),
    "55": (RefusedError, ""),
    "57": (UnavailableError, ""),
    "58": (TargetError, "see the server's log."),
    "F0": (RefusedError, "correct the server's configuration."),
    "P0": (
        RefusedError,
        "a trigger or rule of the table raised it; of CREATE or DROP, an event trigger.",
    ),
    "XX": (TargetError, "see the server's log."),
}

_REFUSED_AT_THE_DOOR = (
    "password authentication failed",
    "no password supplied",
    "authentication failed",
    "no pg_hba.conf entry",
    "does not exist",
    "is not permitted to log in",
    "permission denied for database",
    "does not support SSL",
    "certificate",
    "invalid value for parameter",
    "invalid port number",
    "invalid integer value",
    "invalid sslmode",
    "not currently accepting connections",
)
"""Texts of a failed connection that no retry can help; libpq gives no SQLSTATE there.

A server with other lc_messages than English is not recognised: then it counts as unavailable.
"""


_COPY_CONTEXT = re.compile(r"COPY .+?, line (?P<line>\d+)(?:, column (?P<column>[^:\n]+))?")


def to_abs_error(error: psycopg.Error, doing: str) -> AbsError:
    """The project's error for one of the driver's.

    ``doing``: the action, as the end of a sentence: ``copying rows into public.t``.
    """
    return _translated(error, doing).of(SYSTEM)


def _translated(error: psycopg.Error, doing: str) -> AbsError:
    state, hint = error.sqlstate, error.diag.message_hint
    if state is None:
        return _without_state(error, doing)
    kind, remedy = _BY_STATE.get(state) or _BY_CLASS.get(state[:2]) or (TargetError, "")
    if refuses_copied_value(error):
        kind, remedy = _BY_CLASS["22"]
    primary = _without_stop(error.diag.message_primary or str(error).splitlines()[0])
    if issubclass(kind, RowError):
        primary = _without_value(primary, state)
    further = _further(error)
    # A traceback shows the cause, too: without DETAIL and CONTEXT there.
    error.args = (primary,)
    if state == _OUT_OF_MEMORY and (setting := _LOCKS.search(hint or "")):
        kind, remedy = (
            RefusedError,
            f"raise {setting[0]}, or let an epoch have fewer tasks (coalesce).",
        )
    if hint and not remedy:
        remedy = hint if hint.endswith(".") else f"{hint}."
    return kind(f"PostgreSQL failed while {doing}: {primary}{further} [{state}].", remedy=remedy)


def refuses_copied_value(error: psycopg.Error) -> bool:
    """Whether a COPY ended at a value that the type's own input refused, with a code of another class.

    So do types with a syntax of their own: tsquery, jsonpath, regclass (42601, 42P01); and those of
    extensions (XX000, which is for errors without a code): hstore of PostgreSQL 15 and older.
    """
    state = error.sqlstate or ""
    copied = _COPY_CONTEXT.match(error.diag.context or "")
    of_type = state.startswith("42") or state == "XX000"
    return of_type and copied is not None and copied["column"] is not None


def by_data(error: BaseException | None) -> bool:
    """Whether the server refused a row for what it holds: by its value, a constraint or a trigger."""
    if not isinstance(error, psycopg.Error):
        return False
    of_class = (error.sqlstate or "")[:2] in ("22", "23", "44", "P0")
    return of_class or refuses_copied_value(error)


@contextmanager
def translate_errors(doing: str) -> Iterator[None]:
    """Map the driver's errors; ``doing`` as for ``to_abs_error``."""
    try:
        yield
    except psycopg.Error as error:
        raise to_abs_error(error, doing) from error
    except OSError as error:  # the driver lets it through where it cannot wait for the socket
        if local := local_error(error, doing, SYSTEM):
            raise local from error
        raise _lost(doing, str(error), error) from error


def cannot_connect(error: psycopg.Error, where: str) -> AbsError:
    """The project's error for a failed connection."""
    text = _without_stop(" ".join(str(error).split())) or type(error).__name__
    sentence = f"Cannot connect to PostgreSQL at {where}: {text}."
    if isinstance(error, psycopg.OperationalError) and not any(
        sign in text for sign in _REFUSED_AT_THE_DOOR
    ):
        remedy = "check the option url, and that the server runs."
        return name_open_files(UnavailableError(sentence, remedy=remedy), error).of(SYSTEM)
    return RefusedError(sentence, remedy="check the options url, user and password.")


def _without_state(error: psycopg.Error, doing: str) -> AbsError:
    """No SQLSTATE: the connection broke, or the driver itself objects."""
    text = _without_stop(" ".join(str(error).split())) or type(error).__name__
    if STANDBY in text:
        return UnavailableError(
            f"PostgreSQL does not answer while {doing}: {text}.",
            remedy="bring the standby back, or take it out of synchronous_standby_names and reload.",
        )
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return _lost(doing, text, error)
    if isinstance(error, psycopg.DataError):
        return RowError(
            f"A value cannot be sent while {doing}: {text}.",
            remedy="correct the value in the input.",
        )
    return TargetError(f"The PostgreSQL driver failed while {doing}: {text}.")


def _lost(doing: str, text: str, cause: BaseException) -> AbsError:
    error = UnavailableError(
        f"PostgreSQL went away while {doing}: {text}.",
        remedy="the server may have executed the request; the job checks that before it continues.",
    )
    return name_open_files(error, cause).of(SYSTEM)


_OUT_OF_MEMORY = "53200"
_LOCKS = re.compile(r"max\w+_per_transaction")
"""The setting in the hint of a full lock table, which stands there in every language."""

_QUOTE = re.compile("[\"'`\u00ab\u00bb\u201c\u201d\u201e\u2018\u2019]")
"""The first quote in a message, whatever lc_messages is."""

_BYTES = re.compile(r"(?: ?0x[0-9a-fA-F]{2})+")


def _without_value(text: str, state: str) -> str:
    """The message of an error of class 22 without the value that it quotes."""
    if state in ("22021", "22P05"):  # they quote encodings, and show the bytes of a character
        return _without_stop(_BYTES.sub("", text))
    kept = _without_stop(_QUOTE.split(text, maxsplit=1)[0])
    if kept == _without_stop(text):
        return kept
    kind = re.sub("(?<!^)(?=[A-Z])", " ", psycopg.errors.lookup(state).__name__).lower()
    return f"{kept} ({kind})"


def _without_stop(text: str) -> str:
    """Without a final full stop or colon, to continue the sentence."""
    return text.rstrip(".: ")


def _further(error: psycopg.Error) -> str:
    """A violated key's DETAIL; or the row of this task's share and the column, without the value."""
    # "Key (id)=(5) already exists." Not for check and null constraints: "Failing row contains ...".
    if error.sqlstate in ("23505", "23503", "23P01") and error.diag.message_detail:
        return f" ({_without_stop(error.diag.message_detail)})"
    match = _COPY_CONTEXT.match(error.diag.context or "")
    if match is None:
        return ""
    column = f", column {match['column']}" if match["column"] else ""
    return f" (row {match['line']} of the task's share{column})"
