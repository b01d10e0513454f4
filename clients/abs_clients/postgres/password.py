"""Passwords that are obtained anew for each connection: from a program, a file or a function.

So a token that lives for minutes (AWS RDS, Microsoft Entra) may expire under a running job: open
sessions go on, and each new one gets a new token. Nothing is kept, and nothing is shown (I9).
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from abs_clients.functions import NAMED, Answer, StillRunningError, function_named, is_function_name
from abs_clients.postgres.errors import SYSTEM
from abs_core.errors import AbsError, OptionError, RefusedError, UnavailableError

COMMAND, FILE, FUNCTION = SOURCES = ("passwordcommand", "passwordfile", "passwordfunction")
"""Options, each of which names where the password is obtained."""

OBTAIN_SECONDS = 30.0
"""How long to wait for the program or the function: a connection waits for it."""


@dataclass(frozen=True, slots=True)
class PasswordSource:
    """Where passwords come from.

    Args:
        option: one of ``SOURCES``.
        text: its value, not shown.
    """

    option: str
    text: str = field(repr=False)

    def check(self) -> None:
        """Raise OptionError for a value that cannot be; nothing is run or read."""
        if self.option == FUNCTION and not is_function_name(self.text):
            raise OptionError(
                f"The option {FUNCTION} must be {NAMED}.",
                remedy="name a function that every machine of the job can import.",
            )
        if self.option == COMMAND:
            _arguments(self.text)

    def obtain(self, parameters: Mapping[str, str]) -> str:
        """A password for a new connection.

        Args:
            parameters: libpq's, for the function; without a password.

        Raises:
            OptionError: program, file or function cannot be used on this machine.
            RefusedError: there is no password in what it gave.
            UnavailableError: the program or function failed; the next try may go well.
        """
        if self.option == COMMAND:
            password = _of_command(self.text)
        elif self.option == FILE:
            password = _of_file(self.text)
        else:
            password = _of_function(self.text, parameters)
        if not password or "\0" in password:
            raise RefusedError(
                f"The option {self.option} gave no password.",
                remedy="look what it gives on this machine, as the user of this process.",
            )
        return password


def _arguments(text: str) -> list[str]:
    try:
        arguments = shlex.split(text)
    except ValueError:
        arguments = []
    if not arguments:
        raise OptionError(
            f"The option {COMMAND} is not a command line.",
            remedy="write a program and its arguments, quoted as for a shell; no shell runs it.",
        )
    return arguments


def _of_command(text: str) -> str:
    """The first line that the program writes."""
    try:
        ran = subprocess.run(
            _arguments(text),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # who knows what a program says
            timeout=OBTAIN_SECONDS,
            check=False,
        )
        if ran.returncode == 0:
            return (ran.stdout.decode().splitlines() or [""])[0]
        ending = f"ended with code {ran.returncode}"
    except subprocess.TimeoutExpired:
        ending = f"did not end within {OBTAIN_SECONDS:g} s"
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(
            f"The program of the option {COMMAND} cannot be used: {type(error).__name__}.",
            remedy="install it on the driver and every executor, and give its whole path.",
        ) from None
    raise UnavailableError(
        f"The program of the option {COMMAND} {ending}.",
        remedy="it is run again for the next connection; run it by hand to see why.",
    ).of(SYSTEM)


def _of_file(text: str) -> str:
    """The file's text without the end of the line. It is read anew each time: secrets are rotated."""
    try:
        return Path(text).read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(
            f"The file of the option {FILE} cannot be read: {type(error).__name__}.",
            remedy="each machine of the job needs it, readable for the job's user.",
        ) from error


def _of_function(name: str, parameters: Mapping[str, str]) -> str:
    function = function_named(FUNCTION, name)
    try:
        asked = Answer(partial(function, dict(parameters)), "abs-postgres-password")
        password = asked.within(OBTAIN_SECONDS)
    except AbsError:
        raise
    except StillRunningError:
        raise UnavailableError(
            f"The function {FUNCTION}={name} gave no password within {OBTAIN_SECONDS:g} s.",
            remedy="see what it waits for; it is called again for the next connection.",
        ).of(SYSTEM) from None
    except Exception as error:
        raise UnavailableError(
            f"The function {FUNCTION}={name} failed: {type(error).__name__}: {error}.",
            remedy="it is called again for the next connection; call it by hand to see why.",
        ).of(SYSTEM) from error
    if not isinstance(password, str):
        raise OptionError(
            f"The function {FUNCTION}={name} returned {type(password).__name__}.",
            remedy="return the password or token as a str.",
        )
    return password
