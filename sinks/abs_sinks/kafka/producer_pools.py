"""The pools of a sink's producers in one process; see ``producer_pool``."""

from __future__ import annotations

from contextlib import suppress

from abs_core.contracts import Task
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.producer_pool import ProducerPool


class ProducerPools:
    """The pools of one sink in one process, by job and generation. Thread-safe."""

    def __init__(self) -> None:
        self._pools: dict[tuple[str, str, int], ProducerPool] = {}
        self._replaced: list[tuple[tuple[str, str, int], ProducerPool]] = []
        """Those that older certificates have connected, as long as they hold a transaction."""

    def of(self, options: KafkaOptions, task: Task) -> ProducerPool:
        """The task's pool; closes those of lower generations of its job."""
        key = task.register, task.job, task.generation
        for entry in list(self._replaced):
            (*whose, generation), pool = entry
            if key[:2] == tuple(whose) and (generation < key[2] or not pool.holds_any(task)):
                with suppress(ValueError):
                    self._replaced.remove(entry)
                pool.close()
        current = self._pools.get(key)
        if current is None:
            for older in [k for k in list(self._pools) if k[:2] == key[:2] and k[2] < key[2]]:
                if gone := self._pools.pop(older, None):
                    gone.close()
            new = ProducerPool(options, task.register, task.job, task.generation)
            # Tasks of several threads begin at once; a second one has made nothing, and goes.
            current = self._pools.setdefault(key, new)
        return current

    def renew(self) -> None:
        """Certificates were replaced: the next task gets new producers under ids of their own (I6).

        The pools that there are stay until no decision can name what is pre-committed in them.
        """
        for key in list(self._pools):
            if (pool := self._pools.pop(key, None)) is not None:
                self._replaced.append((key, pool))

    def all(self) -> list[ProducerPool]:
        return [*self._pools.values(), *(pool for _, pool in self._replaced)]

    def close(self) -> None:
        for pool in self.all():
            pool.close()
        self._pools.clear()
        self._replaced.clear()
