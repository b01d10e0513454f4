"""Servers on a disk that loses power: what they had acknowledged, and what is there afterwards.

The disk is FUSE's (``tests/kit/power_loss``). Epochs are committed by the sink, and each that is
acknowledged is said; then the power is cut at several moments, the server starts again on what is
left, and a new run goes on. What it means for a server's settings: ``docs/explanation/proof.md``.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import duckdb
import psycopg
import pytest

from abs_clients.kafka.cluster import close_clusters
from abs_clients.s3.client import close_idle
from abs_core.errors import AbsError, UnavailableError
from abs_services.native import NativeKafka, NativePostgres, NativeS3
from abs_services.native.s3 import find_weed
from abs_services.paths import Account
from abs_sinks.postgres.testing import TableHarness
from abs_sinks.postgres.testing import Variant as Table
from abs_sinks.s3.testing import FolderHarness
from abs_testing.case import Case
from abs_testing.harness import Row
from tests import sample
from tests.kit.kafka import TopicHarness, Variant
from tests.kit.power_loss.disk import PowerDisk, Said
from tests.kit.power_loss.images import BEGIN, SECTOR, images, put
from tests.kit.third_reader import BucketByCurl, records_by_kafka

pytestmark = [pytest.mark.campaign, pytest.mark.services, pytest.mark.timeout(3600)]

EPOCHS, ROWS = 5, 20
AT_RANDOM = 2
"""Random images at each moment, besides six plain ones."""
ENOUGH = 3
"""Broken images, after which no more are looked at."""
FOLDER = "server"


FLUSHED = {"log.flush.interval.messages": "1"}
"""The broker waits for the disk before it acknowledges, in every topic, its own too."""


SYNCED = {
    "filer.toml": """
[leveldb2]
enabled = false
[sqlite]
enabled = true
dbFile = "data/filer.db"
"""
}
"""SeaweedFS keeps the names of its objects in SQLite, which syncs each transaction."""


class System(Protocol):
    """A server, and a target in it that a sink writes to.

    Args:
        files: in the server's folder, which is on another disk.
    """

    files: Mapping[str, str]

    @property
    def server(self) -> NativePostgres | NativeKafka | NativeS3: ...

    def make(self) -> Case:
        """A new target, on a server that has started."""

    def again(self) -> Case:
        """The same target, looked at after a restart."""

    def rows(self) -> Counter[Row]:
        """What a reader sees."""

    def settle(self, epoch: int) -> None:
        """What an administrator does after an epoch."""

    def mend(self) -> None:
        """What an administrator does after a power cut, before the server starts again."""

    def close(self) -> None:
        """Let go of the server, which is gone."""


@dataclass
class Postgres:
    """A table, by ``protocol``."""

    place: Path
    protocol: str
    settings: dict[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Shared memory is no part of what a disk keeps.
        given = {"dynamic_shared_memory_type": "posix", **self.settings}
        self.server = NativePostgres(self.place, settings=given)

    def make(self) -> Case:
        self.harness = TableHarness(self.server.url, Table(self.protocol, "append"))
        return Case(self.harness)

    def again(self) -> Case:
        self.harness.reconnect()
        return Case(self.harness)

    def rows(self) -> Counter[Row]:
        return Counter((int(key), str(value)) for key, value in self.harness.read())

    def settle(self, epoch: int) -> None:
        if epoch == 2:  # what was written before is in data files then, and no longer in the log
            with psycopg.connect(self.server.admin_url, autocommit=True) as connection:
                connection.execute("checkpoint")

    def mend(self) -> None:
        """Nothing."""

    def close(self) -> None:
        self.harness.db.close()


@dataclass
class Kafka:
    """A topic, by ``2pc``, read by Kafka's own consumer."""

    place: Path
    settings: dict[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Else each partition has two files of 10 MB from the beginning.
        self.server = NativeKafka(
            self.place, settings={"log.index.size.max.bytes": "65536", **self.settings}
        )

    def make(self) -> Case:
        self.harness = TopicHarness(self.server.bootstrap, Variant("2pc"))
        return Case(self.harness)

    def again(self) -> Case:
        close_clusters()
        return Case(self.harness)

    def rows(self) -> Counter[Row]:
        classes = self.place.with_name("classes")
        classes.mkdir(exist_ok=True)
        records = records_by_kafka(self.server.bootstrap, self.harness.topic, classes)
        return Counter((int(value[1:]), value) for _, _, value in records)

    def settle(self, epoch: int) -> None:
        """Nothing."""

    def mend(self) -> None:
        """Nothing."""

    def close(self) -> None:
        close_clusters()


@dataclass
class Bucket:
    """A folder of a bucket, by ``2pc``, read by curl and DuckDB.

    Args:
        fsync: whether the volumes' writes are synced.
        fix: whether their indexes are made again after a power cut.
    """

    place: Path
    fsync: bool = False
    fix: bool = False
    files: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.server = NativeS3(self.place)
        self._copies = 0

    def make(self) -> Case:
        if self.fsync:
            self._shell("fs.configure -locationPrefix=/ -fsync -apply")
        given = {
            "endpoint": self.server.endpoint,
            "region": self.server.region,
            "protocol": "2pc",
        }
        os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"] = self.server.keys
        self.harness = FolderHarness(f"s3://{self.server.bucket}/data", given)
        return Case(self.harness)

    def again(self) -> Case:
        return Case(self.harness)

    def rows(self) -> Counter[Row]:
        prefix = self.harness.path.removeprefix(f"s3://{self.server.bucket}/")
        self._copies += 1
        copies = BucketByCurl(self.server, prefix).fetch(
            self.place.with_name(f"copies-{self._copies}")
        )
        found = [duckdb.read_parquet(str(path)).fetchall() for path in copies.values()]
        return Counter((key, value) for rows in found for key, value in rows)

    def settle(self, epoch: int) -> None:
        """Nothing."""

    def mend(self) -> None:
        for volume in (self.place / "data").glob("*.dat") if self.fix else ():
            # One in which nothing was ever synced has no version, which it begins with.
            if volume.read_bytes().lstrip(b"\0"):
                collection, _, number = volume.stem.rpartition("_")
                named = [f"-collection={collection}", f"-volumeId={number}"]
                _weed("fix", *named, str(volume.parent))

    def close(self) -> None:
        close_idle()

    def _shell(self, command: str) -> None:
        ports = self.server.identity.ports
        at = (f"-{r}=127.0.0.1:{ports[r]}.{ports[r + '.grpc']}" for r in ("master", "filer"))
        assert '"fsync"' in _weed("shell", *at, told=f"{command}\n")


def _weed(*command: str, told: str = "") -> str:
    done = subprocess.run(
        [str(find_weed()), *command], input=told, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def rows_of(epoch: int) -> list[list[Row]]:
    """Of its two tasks."""
    first = epoch * 1000
    return [
        [(key, f"v{key}") for key in range(begin, begin + ROWS)] for begin in (first, first + 500)
    ]


def written(system: System, disk: PowerDisk, place: Path) -> None:
    """Commit all epochs on the disk, say each that is acknowledged, and kill the server."""
    data = disk.root / FOLDER
    data.mkdir(mode=0o700)
    place.mkdir(mode=0o711)
    (place / "data").symlink_to(data)
    for name, content in system.files.items():
        (place / name).write_text(content)
    disk.say(f"{BEGIN}{FOLDER}")
    try:
        system.server.start()
        case = system.make()
        run = case.run()
        for epoch in range(EPOCHS):
            run.epoch(epoch, *rows_of(epoch))
            disk.say(f"epoch {epoch}")
            system.settle(epoch)
        assert system.rows() == Counter(expected(EPOCHS)), "the power is still on"
        case.close()
    finally:
        system.server.kill()
        system.close()
    (place / "data").unlink()


def expected(epochs: int) -> Iterator[Row]:
    return (row for epoch in range(epochs) for rows in rows_of(epoch) for row in rows)


@dataclass
class Seen:
    """What was found on images.

    Args:
        broken: of images that lost, doubled or tore something, what it was.
    """

    images: int = 0
    broken: list[str] = field(default_factory=list)


def moments(record: Sequence[object], count: int) -> list[int]:
    """Numbers of events: some promises, and as many drawn between two."""
    said = [n for n, event in enumerate(record) if isinstance(event, Said)]
    promises = [n for n in said if record[n].text.startswith("epoch")]  # type: ignore[attr-defined]
    rng = random.Random(sample.seed())
    between = [rng.randrange(one + 1, other) for one, other in pairwise(promises)]
    return sorted([*rng.sample(promises[1:], count), *rng.sample(between, count)])


def after_cuts(system: System, disk: PowerDisk, place: Path, count: int) -> Seen:
    """Start the server on images of the disk, and look at each."""
    record = disk.record()
    seen = Seen()
    when = moments(record, count)
    for number, said, image in images(
        record, FOLDER, AT_RANDOM, sample.seed(), moments=when, piece=SECTOR, names_files=True
    ):
        seen.images += 1
        promised = sum(text.startswith("epoch") for text in said)
        put(image, place / "data")
        system.mend()
        own(place / "data")
        try:
            system.server.start()
            look(system, promised)
        except (AssertionError, AbsError, UnavailableError, psycopg.Error) as error:
            seen.broken.append(f"behind event {number}, {promised} epochs promised: {error}")
            print(seen.broken[-1], flush=True)
        finally:
            system.server.kill()
            system.close()
        shutil.rmtree(place / "data")
        if len(seen.broken) == ENOUGH:
            break
    return seen


def own(folder: Path) -> None:
    """Give all of it to the account that servers run as, as it was."""
    account = Account.for_servers()
    folder.chmod(0o700)
    if account is not None:
        for path in [folder, *folder.rglob("*")]:
            account.own(path)


def look(system: System, promised: int) -> None:
    """All that was promised is there, nothing twice, and a new run brings the rest."""
    with system.again() as case:
        found = system.rows()
        lost = Counter(expected(promised)) - found
        assert not lost, f"{lost.total()} acknowledged rows are lost: {sorted(lost)[:2]}"
        twice = found - Counter(expected(EPOCHS))
        assert not twice, f"{twice.total()} rows are too many: {sorted(twice)[:2]}"
        run = case.run()
        for epoch in range(promised, EPOCHS):
            run.epoch(epoch, *rows_of(epoch))
        assert system.rows() == Counter(expected(EPOCHS)), "after a new run"


def cut(system: System, folder: Path, place: Path, count: int = 1) -> Seen:
    """Write on a disk, and look at what cuts leave behind ``count`` promises, and between as many."""
    with PowerDisk(folder) as disk:
        written(system, disk, place)
    seen = after_cuts(system, disk, place, count)
    print(f"\n{len(disk.record())} events, {seen.images} images, {len(seen.broken)} broken")
    return seen


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder that every user can pass through, with a path that fits a unix socket."""
    with tempfile.TemporaryDirectory(prefix="abs-power-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def place(short_folder: Path) -> Path:
    """The server's folder; its data folder is a link to the disk."""
    return short_folder / "server"


@pytest.mark.parametrize("protocol", ["2pc", "wal"])
def test_postgresql_keeps_what_it_has_acknowledged(
    protocol: str, place: Path, short_folder: Path
) -> None:
    seen = cut(Postgres(place, protocol), short_folder, place, count=1)
    assert seen.broken == []
    assert seen.images >= 10


@pytest.mark.parametrize("protocol", ["2pc", "wal"])
def test_postgresql_without_fsync_is_found_losing(
    protocol: str, place: Path, short_folder: Path
) -> None:
    assert cut(Postgres(place, protocol, {"fsync": "off"}), short_folder, place).broken


def test_kafka_by_default_has_acknowledged_what_a_power_cut_takes(
    place: Path, short_folder: Path
) -> None:
    assert "acknowledged rows are lost" in cut(Kafka(place), short_folder, place).broken[0]


def test_kafka_keeps_it_where_each_batch_is_flushed(place: Path, short_folder: Path) -> None:
    assert cut(Kafka(place, FLUSHED), short_folder, place).broken == []


@pytest.fixture
def of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its keys are noted where the client finds them, and go with the test."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.usefixtures("of_the_server")
@pytest.mark.parametrize("fsync", [False, True])
def test_seaweedfs_has_acknowledged_what_a_power_cut_takes(
    fsync: bool, place: Path, short_folder: Path
) -> None:
    """By default, and also where the volumes' writes are synced: the names of objects are not."""
    seen = cut(Bucket(place, fsync=fsync), short_folder, place)
    assert any("acknowledged rows are lost" in broken for broken in seen.broken)


@pytest.mark.usefixtures("of_the_server")
@pytest.mark.parametrize("fix", [False, True])
def test_seaweedfs_keeps_it_where_volumes_and_names_are_synced_but_for_indexes(
    fix: bool, place: Path, short_folder: Path
) -> None:
    """Objects are there, and can be read once the volumes' indexes are made again."""
    seen = cut(Bucket(place, fsync=True, fix=fix, files=SYNCED), short_folder, place)
    assert bool(seen.broken) != fix
