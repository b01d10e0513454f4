"""Topics that go back as on brokers that lost their last records: the same topic, with a shorter log.

The broker is killed, the folders of the topic's partitions are put back to what they were, and it is
started again. Its register, other topics, and what coordinators know of transactions stay.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from abs_clients.kafka.cluster import close_clusters
from abs_services.native.kafka import NativeKafka
from tests.kit.kafka import PARTITIONS, TopicHarness
from tests.kit.kafka_modes import open_variant

_INDEXES = ("*.index", "*.timeindex", "*.txnindex", "*.snapshot")
"""Files that a broker makes again from the log; those of a running one are not whole."""


class Restored:
    """Puts a harness's topic back (``abs_testing.GoingBack``).

    Args:
        broker: it is killed and started again, so nobody else uses it.
    """

    def __init__(self, harness: TopicHarness, broker: NativeKafka, folder: Path) -> None:
        self._harness, self._broker, self._folder = harness, broker, folder
        self._kept = 0

    def backup(self) -> Callable[[], None]:
        """See ``abs_testing.GoingBack``."""
        self._harness.hidden()  # readers wait for markers: they are in the log then
        self._harness.records()
        kept = self._folder / str(self._kept)
        self._kept += 1
        for folder in self._partitions():
            shutil.copytree(folder, kept / folder.name, ignore=shutil.ignore_patterns(*_INDEXES))

        def restore() -> None:
            self._broker.kill()
            for folder in self._partitions():
                shutil.rmtree(folder)
                shutil.copytree(kept / folder.name, folder)
            self._broker.start()
            self._harness.look_anew()
            close_clusters()

        return restore

    def backup_of_all(self) -> Callable[[], None]:
        """The same for all that the broker has: registers, transactions, and its own state."""
        data, kept = self._broker.folder / "data", self._folder / "all"
        self._broker.stop()
        shutil.copytree(data, kept)
        self._broker.start()

        def restore() -> None:
            self._broker.kill()
            shutil.rmtree(data)
            shutil.copytree(kept, data)
            self._broker.start()
            self._harness.look_anew()
            close_clusters()

        return restore

    def _partitions(self) -> list[Path]:
        return sorted((self._broker.folder / "data").glob(f"{self._harness.topic}-[0-9]*"))


@contextmanager
def open_restored(
    name: str, partitions: int = PARTITIONS, *, whole: bool = False
) -> Iterator[TopicHarness]:
    """A harness as ``open_variant``'s on a broker of its own, whose topic can go back.

    Args:
        whole: the broker goes back with it.
    """
    with (
        NativeKafka() as broker,
        tempfile.TemporaryDirectory(prefix="abs-restored-") as folder,
        open_variant(broker.bootstrap, name) as harness,
    ):
        if partitions != PARTITIONS:
            harness.widen(partitions)
        restored = Restored(harness, broker, Path(folder))
        backup = restored.backup_of_all if whole else restored.backup
        harness.backup = backup  # type: ignore[attr-defined]
        yield harness
        close_clusters()
