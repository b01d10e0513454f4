"""A broker that writes the markers of transactions late, as a busy one may: finds who looks too early.

Brokers answer to a commit when it is decided, and then tell the partitions' leaders to write its
markers, by a request on the listener between brokers. Here this one leads through a relay that keeps
each byte for a while. ``ABS_TEST_LATE_MARKERS=0.5`` lets all tests of a run use such a broker.
"""

from __future__ import annotations

import asyncio
import os
import threading

from abs_services.native.kafka import NativeKafka, ServerIdentity
from abs_services.processes import free_ports
from abs_services.settings import new_cluster_id

SECONDS = "ABS_TEST_LATE_MARKERS"


def seconds() -> float:
    """How late markers are to be in this run; 0: as the broker writes them."""
    return float(os.environ.get(SECONDS) or 0)


class LateMarkers(NativeKafka):
    """In a temporary folder.

    Args:
        late: seconds.
    """

    def __init__(self, late: float) -> None:
        port, controller, self._own, self._relay = free_ports(4)
        super().__init__(identity=ServerIdentity(port, controller, new_cluster_id()))
        threading.Thread(
            target=lambda: asyncio.run(_relay(self._relay, self._own, late)), daemon=True
        ).start()

    def _properties(self) -> dict[str, str]:
        made = super()._properties()
        return {
            **made,
            "listeners": f"{made['listeners']},OWN://127.0.0.1:{self._own}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap},OWN://127.0.0.1:{self._relay}",
            "inter.broker.listener.name": "OWN",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OWN:PLAINTEXT",
        }


async def _relay(port: int, to: int, late: float) -> None:
    """Serve until the process ends."""

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, late: float) -> None:
        try:
            while data := await source.read(1 << 16):
                await asyncio.sleep(late)
                target.write(data)
                await target.drain()
        except OSError:  # the broker was killed
            pass
        target.close()

    async def serve(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            answers, asks = await asyncio.open_connection("127.0.0.1", to)
        except OSError:
            target.close()
            return
        await asyncio.gather(copy(source, asks, late), copy(answers, target, 0.0))

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    async with server:
        await server.serve_forever()
