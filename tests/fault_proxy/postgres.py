"""A relay before a PostgreSQL server that loses statements and answers: for tests of recovery.

It looks for a text in what clients send. psycopg sends each statement in one piece, so a statement
is found by a word in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import urlsplit, urlunsplit

from abs_testing.calls import Loss
from abs_testing.relay import Relay


class LossyProxy(Relay):
    """Stands before a PostgreSQL server.

    Args:
        url: libpq URI of the server, by TCP.
        rewrite: what becomes of what the server answers.
    """

    def __init__(
        self, url: str, rewrite: Callable[[bytes], bytes] = lambda message: message
    ) -> None:
        parts = urlsplit(url)
        server = parts.hostname or "127.0.0.1", parts.port or 5432
        super().__init__(server, rewrite=rewrite, name_of=name_of, answers=False, amend=self._asked)
        self._before: tuple[bytes, Callable[[], object]] | None = None
        at = f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{self.port}"
        self.url = urlunsplit(parts._replace(netloc=at))
        """libpq URI of the relay."""

    def lose(self, loss: Loss, text: str, nth: int = 1) -> None:
        """Arm: the nth message from now on that has ``text`` in it is lost that way, once."""
        self.lose_if(loss, lambda message: text.encode() in message, nth)

    def before(self, text: str, happens: Callable[[], object]) -> None:
        """This happens once, before the next message with ``text`` in it goes on to the server."""
        self._before = text.encode(), happens

    @property
    def waits(self) -> bool:
        """Whether what is to happen ``before`` a message has not happened yet."""
        return self._before is not None

    def _asked(self, message: bytes) -> bytes:
        if self._before is not None and self._before[0] in message:
            (_, happens), self._before = self._before, None
            happens()
        return message


_WORDS = re.compile(rb"[A-Za-z]+")


def name_of(message: bytes) -> str | None:
    """The name of a client's message that counts as a call: its statement's first words.

    None for what makes and ends a connection: a job's calls begin behind it.
    """
    kind = message[:1]
    if kind in (b"Q", b"P"):
        words = _WORDS.findall(message[5:200])
        return b" ".join(words[:3]).decode()
    return {b"d": "CopyData", b"c": "CopyDone"}.get(kind)
