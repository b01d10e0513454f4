"""A relay before a broker that loses requests and replies, and denies: for tests of recovery."""

from __future__ import annotations

from collections.abc import Callable

from abs_chaos.faults import Api as Api
from abs_chaos.faults import KafkaFaults, name_of
from abs_testing.calls import Loss

INVALID_TRANSACTION_TIMEOUT = (50).to_bytes(2, "big")
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = (53).to_bytes(2, "big")


class LossyBroker(KafkaFaults):
    """Stands before a broker.

    Args:
        bootstrap: host:port of the broker, plain text, host ``127.0.0.1``.
        repeats: what ``repeat`` brings again.
        only_late: see ``Relay``.
    """

    def __init__(
        self, bootstrap: str, repeats: Api = Api.END_TXN, *, only_late: bool = False
    ) -> None:
        host, _, port = bootstrap.partition(":")
        super().__init__(host, int(port), only_late=only_late)
        self._repeats = repeats
        self.denied = ""
        """A transactional id that nobody may initialise now."""
        self.denials = 0
        """How often it was denied."""
        self._denied: set[bytes] = set()
        self._before: tuple[Api, Callable[[], object]] | None = None
        self.bootstrap = f"127.0.0.1:{self.port}"
        """host:port of the relay."""

    def lose(self, loss: Loss, api: Api, nth: int = 1) -> None:
        """Arm: the nth request of that kind from now on is lost that way, once."""
        self.lose_if(loss, lambda frame: int.from_bytes(frame[4:6], "big") == api, nth)

    def before(self, api: Api, happens: Callable[[], object]) -> None:
        """This happens once, before the next request of that kind goes on to the broker."""
        self._before = api, happens

    @property
    def waits(self) -> bool:
        """Whether what is to happen ``before`` a request has not happened yet."""
        return self._before is not None

    def ends(self, name: str) -> bool:
        """See ``check_repeats.Repeating``."""
        return name == self._repeats.name

    def _request(self, frame: bytes) -> bytes:
        """One that is to be denied gets a timeout that the broker takes from nobody."""
        if self._before is not None and int.from_bytes(frame[4:6], "big") == self._before[0]:
            (_, happens), self._before = self._before, None
            happens()
        at = frame.find(self.denied.encode()) + len(self.denied)
        if not self.denied or name_of(frame) != Api.INIT_PRODUCER_ID.name or at < len(self.denied):
            return frame
        self._denied.add(frame[8:12])
        return frame[:at] + b"\x7f\xff\xff\xff" + frame[at + 4 :]

    def _answer(self, frame: bytes) -> bytes:
        """Tells the client to come here, and what was denied it that it has no right."""
        if frame[4:8] in self._denied and frame[13:15] == INVALID_TRANSACTION_TIMEOUT:
            self._denied.discard(frame[4:8])
            self.denials += 1
            return frame[:13] + TRANSACTIONAL_ID_AUTHORIZATION_FAILED + frame[15:]
        return super()._answer(frame)
