"""A relay before a PostgreSQL server that loses statements and answers: for tests of recovery.

It looks for a text in what clients send. psycopg sends each statement in one piece, so a statement
is found by a word in it.
"""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from abs_core.testing.relay import Loss, Relay

__all__ = ["Loss", "LossyProxy"]


class LossyProxy(Relay):
    """Stands before a PostgreSQL server.

    Args:
        url: libpq URI of the server, by TCP.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        super().__init__((parts.hostname or "127.0.0.1", parts.port or 5432))
        at = f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{self.port}"
        self.url = urlunsplit(parts._replace(netloc=at))
        """libpq URI of the relay."""

    def lose(self, loss: Loss, text: str, nth: int = 1) -> None:
        """Arm: the nth message from now on that has ``text`` in it is lost that way, once."""
        self.lose_if(loss, lambda message: text.encode() in message, nth)
