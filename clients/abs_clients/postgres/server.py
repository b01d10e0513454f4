"""A PostgreSQL server and its time limits, for sinks and stores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from abs_clients.postgres.address import Address


@dataclass(frozen=True, slots=True)
class Server:
    """A server and a database.

    Args:
        address: with credentials; hidden from ``repr``.
        locktimeout: seconds that a statement waits for a lock.
        connecttimeout: seconds to wait for a connection.
        standbytimeout: seconds that a commit waits for a synchronous standby.
    """

    address: Address
    locktimeout: float = 10.0
    connecttimeout: float = 10.0
    standbytimeout: float = 180.0

    @classmethod
    def at(cls, url: str, user: str | None = None, password: str | None = None) -> Self:
        """The server at a libpq URI, keyword string or JDBC URL; see ``Address.parse``."""
        return cls(Address.parse(url, user, password))
