"""Ways out of a file that cannot be read as it was taken: by a token, which the file's error names.

A person gives the token in the option ``adopt``. The file is then given up (no row of it is read), or
pinned anew (it is read as it is now). The log records it once. A token holds for one log, one file and
its contents then and now; nothing else is affected by one that is left in the options.
"""

from __future__ import annotations

import getpass
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256

from abs_core.errors import AbsError, DataError, ReplayMismatchError
from abs_core.strictjson import fields, parse
from abs_sources.files.model import Pin, Store, pin_from_json

_GIVEN_UP = "given up"


def given_up(pin: Pin) -> Pin:
    """Stands for the file in the log from now on."""
    return Pin(pin.path, 0, _GIVEN_UP)


def is_given_up(pin: Pin) -> bool:
    return pin.stamp == _GIVEN_UP


def to_give_up(log: str, pin: Pin) -> str:
    """Consent to leave out all rows of this file, for good."""
    return _token("give up", log, *pin)


def to_pin_anew(log: str, pin: Pin, now: Pin) -> str:
    """Consent to read this file with its present content."""
    return _token("pin anew", log, *pin, *now)


def record(token: str, pin: Pin, now: Pin) -> bytes:
    """The consent as the log keeps it: what was consented to, by whom, where and when."""
    kept = {
        "consent": token,
        "file": pin,
        "now": None if is_given_up(now) else now,
        "user": _user(),
        "host": socket.gethostname(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    return json.dumps(kept).encode()


def recorded(content: bytes) -> Pin:
    """The file as it is read from now on; raises ``ValueError`` if the record is damaged."""
    kept = fields(parse(content))
    pin = pin_from_json(kept["file"])
    return given_up(pin) if kept["now"] is None else pin_from_json(kept["now"])


@contextmanager
def naming_ways_out(log: str | None, store: Store, pin: Pin, *, begun: bool) -> Iterator[None]:
    """Name the tokens in an error about this file.

    Args:
        log: id of the stream's log; None: a batch read, which has none.
        begun: some rows of the file are read and may be committed, so it cannot be pinned anew.
    """
    try:
        yield
    except (DataError, ReplayMismatchError) as error:
        if log is None:
            raise
        now = None
        with suppress(AbsError):
            now = next((file.pin for file in store.find() if file.pin.path == pin.path), None)
        ways = [f"To leave out {'the rest' if begun else 'all rows'} of this file for good, "]
        ways += [f"set the option adopt={to_give_up(log, pin)} for one start"]
        if begun:
            ways += ["."]
        elif now is None or now == pin:
            ways += [
                "; if other content takes its place, the next error names a token to read that."
            ]
        else:
            ways += [f"; to read it as it is now, set adopt={to_pin_anew(log, pin, now)}."]
        error.remedy = f"{error.remedy} {''.join(ways)}"
        raise


def _user() -> str | None:
    with suppress(KeyError, OSError):  # a container's user may have no name
        return getpass.getuser()
    return None


def _token(purpose: str, *named: object) -> str:
    return sha256(json.dumps([purpose, *named]).encode()).hexdigest()[:12]
