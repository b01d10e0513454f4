"""Targets whose sinks can be built in several ways: what ``check_changes`` drives, and looks into."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from abs_clients.kafka.attempts import side_topic
from abs_clients.kafka.topics import topic_facts
from abs_clients.s3.location import Location
from abs_clients.s3.objects import Objects
from abs_core.contracts import Sink
from abs_core.model import HandleName
from abs_core.wal import FolderSegments
from abs_sinks.kafka.columnar.choice import LIBRDKAFKA
from abs_sinks.kafka.ledger import handles_in_ledger
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register.session import session_of
from abs_sinks.kafka.register.store import KafkaRegister
from abs_sinks.postgres import PostgresOptions, PostgresSink
from abs_sinks.postgres.testing import TableHarness
from abs_sinks.postgres.testing import Variant as TableVariant
from abs_sinks.s3.committed import committed_files
from abs_sinks.s3.layout import handle_of
from abs_sinks.s3.manifests import CommittedFile
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.sink import S3Sink
from abs_sinks.s3.testing import FolderHarness
from abs_testing import SCHEMA, Row
from tests.kit.kafka import Variant, delete_topics
from tests.kit.kafka_modes import AttemptHarness, outlived

Ways = dict[str, Callable[[], Sink]]


class ChangingTable(TableHarness):
    """A table with a primary key, and two state schemas."""

    def __init__(self, url: str, *, own_register: bool) -> None:
        super().__init__(url, TableVariant("wal", "upsert", own_register))
        self._schemas = self.schema, f"{self.schema}_other"
        upsert = {"write": "upsert", "key": "id"}
        other = {"stateschema": self._schemas[1]}
        ways: dict[str, dict[str, str]] = {
            "2pc": {},
            "2pc elsewhere": other,
            "2pc otherwise": {"patience": "2", "batchsize": "1", "locktimeout": "1"},
            "wal": {"protocol": "wal"},
            "wal elsewhere": {"protocol": "wal", **other},
            "wal upsert": {"protocol": "wal", **upsert},
        }
        if own_register:
            ways["idempotent"] = {"protocol": "idempotent", **upsert}
            ways["idempotent elsewhere"] = {**ways["idempotent"], **other}
        self.ways: Ways = {
            name: partial(
                PostgresSink,
                PostgresOptions.parse(
                    {
                        "url": url,
                        "dbtable": self.table,
                        "stateschema": self.schema,
                        "locktimeout": "2",
                        **given,
                    }
                ),
                SCHEMA,
                co_commit=own_register,
            )
            for name, given in ways.items()
        }

    def leftovers(self, job: str) -> Sequence[str]:
        return self._in_each(partial(super().leftovers, job))

    def close(self) -> None:
        self.db.execute(f"drop schema if exists {self._schemas[1]} cascade")
        super().close()

    def _in_each(self, look: Callable[[], Sequence[str]]) -> list[str]:
        found: list[str] = []
        for schema in reversed(self._schemas):
            self.schema = schema
            found += look()
        return sorted(set(found))


class ChangingFolder(FolderHarness):
    """A folder, and two places for its registers."""

    def __init__(self, path: str, given: Mapping[str, str]) -> None:
        super().__init__(path, given)
        self._elsewhere = f"{self.path}-state"
        ways = {
            protocol + name: {"protocol": protocol, **more}
            for protocol in ("2pc", "wal", "idempotent")
            for name, more in (
                ("", {}),
                (" elsewhere", {"statepath": self._elsewhere}),
                (" otherwise", {"compression": "zstd", "filename": "other", "patience": "2"}),
            )
        }
        self.ways: Ways = {
            name: partial(S3Sink, S3Options.parse({**given, "path": self.path, **more}), SCHEMA)
            for name, more in ways.items()
        }
        moved = {"statepath": self._elsewhere}
        self._places = self.options, S3Options.parse({**given, "path": self.path, **moved})

    def read(self) -> Sequence[Row]:
        return self._rows([file.key for file in self._committed()])

    def leftovers(self, job: str) -> Sequence[str]:
        known = {file.key for file in self._committed()}
        own, other = self._places
        kept = set(self.keys())
        for options in (own, other):
            self.options = options
            known |= set(self._of_registers())
            kept |= {found.key for found in self._objects.list(options.state.folder)}
        self.options = own

        def is_of_job(key: str) -> bool:
            handle = handle_of(key)
            return handle is None or handle.job == job

        return [
            *(f"upload of {key}" for key in self.uploads() if is_of_job(key)),
            *(f"object {key}" for key in sorted(kept - known) if is_of_job(key)),
        ]

    def close(self) -> None:
        super().close()
        state = Location.parse(self._elsewhere)
        objects = Objects(self.options.bucket)
        objects.delete([found.key for found in objects.list(state.folder)])

    def _committed(self) -> Sequence[CommittedFile]:
        return committed_files(self._places[0], [Location.parse(self._elsewhere)])


class ChangingTopic(AttemptHarness):
    """A topic that is read by the winners of its side topic, two registers' topics and two logs."""

    def __init__(self, bootstrap: str, folder: Path, *, own_register: bool) -> None:
        super().__init__(bootstrap, Variant("2pc", own_register))
        self._logs = folder / "log", folder / "other"
        for log in self._logs:
            log.mkdir()
        register = self.options.registertopic
        self._registers = register, f"{register}-other"
        elsewhere, here = {"registertopic": self._registers[1]}, {"registertopic": register}
        wal = {"protocol": "wal", "wal": self._logs[0].as_uri()}
        ways = {
            "2pc": here,
            "2pc elsewhere": elsewhere,
            "2pc librdkafka": {**here, "producer": LIBRDKAFKA},
            "2pc otherwise": {**here, "patience": "2", "kafka.transaction.timeout.ms": "300000"},
            "wal": {**here, **wal},
            "wal elsewhere": {**elsewhere, **wal},
            "wal librdkafka": {**here, **wal, "producer": LIBRDKAFKA},
            "wal in another log": {**here, **wal, "wal": self._logs[1].as_uri()},
        }
        if own_register:
            ways["idempotent"] = {**here, "protocol": "idempotent"}
            ways["idempotent elsewhere"] = {**elsewhere, "protocol": "idempotent"}
            ways["idempotent librdkafka"] = {**ways["idempotent"], "producer": LIBRDKAFKA}
        given = {"kafka.bootstrap.servers": bootstrap, "topic": self.topic}
        self._options = {name: KafkaOptions.parse({**given, **w}) for name, w in ways.items()}
        self.ways: Ways = {name: self.sink_for(options) for name, options in self._options.items()}

    def leftovers(self, job: str) -> Sequence[str]:
        proofs: set[HandleName] = set()
        for options in {
            options.registertopic: options for options in self._options.values()
        }.values():
            ledger = KafkaRegister(options).load_text(f"{job}+wal")
            proofs |= set() if ledger is None else handles_in_ledger(job, ledger.text)
        return [
            *(f"segment {e.handle}" for log in self._logs for e in FolderSegments(log).list(job)),
            *(f"{handle} in a ledger" for handle in outlived(proofs)),
            *super().leftovers(job),
        ]

    def close(self) -> None:
        for options in self._options.values():
            session_of(options).close()
        super().close()
        names = [*self._registers, side_topic(self.topic)]
        there = topic_facts(self.options.kafka, names, again=True)
        delete_topics(self.options.kafka, list(there))


def changing_table(url: str, *, own_register: bool = True) -> closing[ChangingTable]:
    """A harness on a new, empty table."""
    return closing(ChangingTable(url, own_register=own_register))


def changing_folder(path: str, given: Mapping[str, str]) -> closing[ChangingFolder]:
    """A harness on a new, empty folder."""
    return closing(ChangingFolder(path, given))


@contextmanager
def changing_topic(bootstrap: str, *, own_register: bool = True) -> Iterator[ChangingTopic]:
    """A harness on a new, empty topic."""
    with tempfile.TemporaryDirectory(prefix="abs-wal-") as folder:
        harness = ChangingTopic(bootstrap, Path(folder), own_register=own_register)
        try:
            yield harness
        finally:
            harness.close()
