"""All uses of non-public parts of kafka-python and confluent-kafka.

kafka-python has no public ``EndTxn`` for another producer's transaction, and its admin client
cannot send a custom request. So its connection manager and network loop are used.
``REQUIRED_ATTRIBUTES`` names each one; a test checks a connected client for them. What both
kafka-python 3.0 and its main branch have is preferred: the loop's ``run``, not the manager's, which
main has removed.
pyproject.toml bounds both libraries.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from typing import Any, TypeVar

from kafka import KafkaAdminClient
from kafka.net.compat import KafkaNetClient

try:
    from kafka.net.sasl.oauth import AbstractTokenProvider as AbstractTokenProvider
except ImportError:  # ``lacking`` names it; other logins do not need it
    AbstractTokenProvider = object

T = TypeVar("T")

Work = Callable[[Any], Awaitable[T]]
"""Gets a client's connection manager; its ``send(request, node_id=...)`` returns a future to await."""

REQUIRED_ATTRIBUTES = (
    "_manager.send",
    "_manager.call_soon",
    "_manager.broker_version_data",
    "_manager.cluster.refresh_metadata",
    "_manager.cluster.brokers",
    "_manager.cluster.broker_metadata",
    "_net.run",
    "_net._exception",
)
"""What a client of kafka-python must have: see ``lacking``."""

WAITS_BY = ("_manager.wait_for", "_net.await_for")
"""How a coroutine waits for a future with a limit: in 3.0, and in main. One of them must be there."""


TO_LOG_IN = "kafka.net.sasl.oauth.AbstractTokenProvider"
"""The class of what gives tokens: kafka-python takes no other object."""

TO_PRODUCE: Mapping[str, tuple[str, ...]] = {
    "KafkaConnectionManager": ("get_connection", "send", "call_soon"),
    "KafkaConnection": ("send_request", "__await__", "connected", "paused"),
}
"""The attributes that the columnar producer uses besides, by class of ``kafka.net``."""


def manager_of(client: KafkaAdminClient) -> Any:
    """The client's connection manager, which sends requests to brokers."""
    return client._manager


def loop_error(client: KafkaAdminClient) -> BaseException | None:
    """Why the client's loop has ended; None while it runs. It is not restarted."""
    error: BaseException | None = client._net._exception
    return error


def close(client: KafkaAdminClient) -> None:
    """Close a client, even one whose loop has failed, which its own ``close`` refuses."""
    client._net._exception = None
    client.close()


def run(client: KafkaAdminClient, work: Work[T], seconds: float) -> T:
    """Run a coroutine on the client's thread, and wait for it.

    Raises:
        RuntimeError: the client's loop has ended.
        kafka.errors.KafkaTimeoutError: it took longer; it goes on.
    """
    manager, loop = client._manager, client._net

    async def within_limit() -> T:
        wait = getattr(manager, "wait_for", None) or loop.await_for
        answer: T = await wait(manager.call_soon(work, manager), seconds * 1000)
        return answer

    result: T = loop.run(within_limit)
    return result


def begin(client: KafkaAdminClient, work: Work[None]) -> None:
    """Run a coroutine on the client's thread without waiting.

    Raises RuntimeError if the client's loop has ended.
    """
    client._manager.call_soon(work, client._manager)


@contextmanager
def connections(*, keep: bool) -> Iterator[Callable[..., KafkaNetClient]]:
    """A factory of a client's connections (its argument ``kafka_client``) that closes them.

    A client whose constructor fails leaves them running, with nothing to close. With ``keep`` they
    are closed only if the block fails.
    """
    with ExitStack() as opened:

        def make(**more: Any) -> KafkaNetClient:
            made = KafkaNetClient(**more)
            opened.callback(made.close)
            return made

        yield make
        if keep:
            opened.pop_all()


def missing_for_producer() -> list[str]:
    """Attributes of ``TO_PRODUCE`` that the installed kafka-python lacks; does not connect."""
    try:
        from kafka.net.connection import KafkaConnection
        from kafka.net.manager import KafkaConnectionManager

        # Of a connection that is not connected yet: some attributes are an object's own.
        owners = {
            "KafkaConnectionManager": KafkaConnectionManager,
            "KafkaConnection": KafkaConnection(None),
        }
    except Exception as error:  # noqa: BLE001 - whatever a version raises that has them otherwise
        return [f"kafka.net.connection as it was ({type(error).__name__}: {error})"]
    wanted = [(owner, name) for owner, names in TO_PRODUCE.items() for name in names]
    return [f"{owner}.{name}" for owner, name in wanted if not hasattr(owners[owner], name)]


def lacking(client: KafkaAdminClient) -> list[str]:
    """Attributes that a connected client lacks."""

    def is_there(path: str) -> bool:
        try:
            attrgetter(path)(client)
        except AttributeError:
            return False
        return True

    missing = [path for path in REQUIRED_ATTRIBUTES if not is_there(path)]
    if AbstractTokenProvider is object:
        missing.append(TO_LOG_IN)
    return missing if any(map(is_there, WAITS_BY)) else [*missing, " or ".join(WAITS_BY)]
