"""A prepared transaction that another session is ending is waited for, and then is a passing error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from psycopg import Connection
from psycopg.errors import ObjectNotInPrerequisiteState, UndefinedObject

from abs_clients.postgres.connection import end_prepared
from abs_core.errors import ContentionError

GID = "abs1:gid"


class Server:
    """A connection that meets these errors in turn, and then none."""

    def __init__(self, *errors: Exception) -> None:
        self._errors: Iterator[Exception] = iter(errors)

    def execute(self, query: Any) -> None:
        for error in self._errors:
            raise error


def end(server: Server, seconds: float = 60.0) -> bool:
    connection = cast(Connection[Any], server)
    return end_prepared(connection, "COMMIT PREPARED {}", GID, seconds=seconds)


def test_one_that_another_session_is_ending_is_waited_for() -> None:
    assert end(Server(ObjectNotInPrerequisiteState("is busy")))
    assert not end(Server(ObjectNotInPrerequisiteState("is busy"), UndefinedObject("is gone")))


def test_one_that_is_being_ended_for_too_long_is_an_error_that_may_pass() -> None:
    busy = [ObjectNotInPrerequisiteState("is busy") for _ in range(1_000)]
    with pytest.raises(ContentionError, match="Another session") as caught:
        end(Server(*busy), seconds=0.2)
    assert caught.value.retryable
    assert caught.value.handle == GID
