"""A job with sinks in PostgreSQL, Kafka and S3: commands know all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from abs_cli.main import app
from abs_cli.places import options_of
from abs_cli.sinksfile import SinksFile
from abs_core.births import consent
from abs_core.contracts import Task
from abs_core.errors import ConfigError, IdentityError, UnavailableError
from abs_core.model import Committable, JobState, Share, Wrote
from abs_core.patience import Patience
from abs_core.protocol import Changed, Identity, decide
from abs_core.several import sinkmap
from abs_services import KafkaService, S3Service
from abs_services.native import NativePostgres
from abs_spark.foreach.run import EpochRun
from abs_spark.foreach.targets import Targets, joined
from abs_spark.formats import sink_format
from abs_spark.names import RunName
from abs_spark.target import Target
from tests.kit.kafka import TopicHarness, Variant, open_topic
from tests.spark.bucket import Bucket

pytestmark = pytest.mark.services

JOB = "orders"
SCHEMA = pa.schema([("key", pa.string()), ("value", pa.string())])
NAMES = ("payments", "alerts", "items")


@dataclass
class Several:
    """A job of three sinks, and the file that tells commands of it."""

    url: str
    topic: TopicHarness
    bucket: Bucket
    folder: Path
    register: str = "payments"
    adopt: str | None = None
    starts: int = 0
    audit: dict[str, tuple[str, str]] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    spark: Path | None = None
    """The query's checkpoint, for commands that read it."""
    patience: str | None = None
    """For how many seconds Kafka's calls are repeated; None: its default."""

    @property
    def options(self) -> dict[str, dict[str, str]]:
        kafka = {
            "kafka.bootstrap.servers": self.topic.bootstrap,
            "topic": self.topic.topic,
            "registertopic": self.topic.options.registertopic,
            **({} if self.patience is None else {"patience": self.patience}),
        }
        return {
            "payments": {"url": self.url, "dbtable": "payments"},
            "alerts": kafka,
            "items": self.bucket.options,
        }

    def file(self, **changed: str) -> Path:
        """The TOML file; with other options of ``payments``."""
        lines = [f'job = "{JOB}"', f'register = "{self.register}"']
        if self.spark is not None:
            lines += [f'checkpointLocation = "{self.spark}"']
        for name, options in self.options.items():
            given = options | (changed if name == "payments" else {})
            kind = {"payments": "abs-postgres", "alerts": "abs-kafka", "items": "abs-s3"}[name]
            lines += [f"[sinks.{name}]", f'format = "{kind}"', f"[sinks.{name}.options]"]
            lines += [f"{key} = {json.dumps(text)}" for key, text in given.items()]
            if self.audit:
                expected, key = self.audit[name]
                lines += [f"[sinks.{name}.audit]", f'expected = "{expected}"', f'key = "{key}"']
                lines += [f'columns = "{self.columns[name]}"'] if name in self.columns else []
        path = self.folder / "job.toml"
        path.write_text("\n".join(lines))
        return path

    def run(self, register: str | None = None) -> EpochRun:
        """A new run of the job, as ``abs_spark.epoch`` makes one."""
        kinds = ("abs-postgres", "abs-kafka", "abs-s3")
        made = []
        for name, kind in zip(NAMES, kinds, strict=True):
            format_ = sink_format(kind)
            made.append(Target(format_, format_.parse(self.options[name]), SCHEMA))
        self.starts += 1
        run = RunName(JOB, "lineage", f"run-{self.starts}")
        checkpoint = str(self.folder / "checkpoint")
        targets = Targets(NAMES, made, register or self.register)
        return EpochRun(run, targets, checkpoint, self.adopt)

    def write(self, run: EpochRun, epoch: int, *values: str) -> list[Committable]:
        """What the tasks of an epoch do."""
        state, _ = run.begin(epoch)
        made = []
        for name, options in self.options.items():
            number = run.numbers[name]
            kind = sink_format({0: "abs-postgres", 1: "abs-kafka", 2: "abs-s3"}[number])
            sink = Target(kind, kind.parse(options), SCHEMA).sink(alone=False)
            partition = number * sinkmap.STRIDE
            task = Task(state.register, JOB, state.generation, epoch, partition, "ab")
            writer = sink.writer(task)
            writer.write(pa.record_batch([list(values), list(values)], schema=SCHEMA))
            committable = writer.pre_commit()
            assert committable is not None
            made.append(committable)
            sink.close()
        return made

    def epoch(self, run: EpochRun, epoch: int, *values: str) -> None:
        made = self.write(run, epoch, *values)
        run.commit(epoch, [Wrote(each.rows, each) for each in made], f"input {epoch}")

    def decided(self, run: EpochRun, epoch: int, *values: str) -> None:
        """What a driver does that dies right after the decision."""
        made = self.write(run, epoch, *values)
        shares: list[Share] = [Wrote(each.rows, each) for each in made]
        store = run.targets.register()
        stored = store.load(JOB)
        assert stored is not None
        verdict = decide(
            stored.state,
            stored.state.generation,
            epoch,
            made,
            fingerprint=f"input {epoch}",
            rows=sum(share.rows for share in shares),
        )
        assert isinstance(verdict, Changed)
        store.compare_and_set(JOB, stored.version, verdict.state)

    def state(self, run: EpochRun) -> JobState:
        stored = run.targets.register().load(JOB)
        assert stored is not None
        return stored.state

    def values(self) -> dict[str, list[str]]:
        """What readers see, in each target."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            rows = [row[0] for row in connection.execute("select value from payments")]
        frame = self.bucket.frame(self.bucket.names())
        found = {
            "payments": rows,
            "alerts": [(value or b"").decode() for _, value in self.topic.records()],
            "items": list(frame["value"]) if len(frame) else [],
        }
        return {name: sorted(values) for name, values in found.items()}


@pytest.fixture
def job(
    database: str, kafka: KafkaService, store: S3Service, prefix: str, tmp_path: Path
) -> Iterator[Several]:
    kafka.start()
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table payments (key text, value text)")
    (tmp_path / "checkpoint").mkdir()
    with open_topic(kafka.bootstrap, Variant("2pc")) as topic:
        yield Several(database, topic, Bucket(store, prefix), tmp_path)


def abs_(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in arguments])


def parsed(*arguments: object) -> Any:
    result = abs_(*arguments, "--json")
    assert result.exit_code in (0, 1), (result.output, result.exception)
    return json.loads(result.stdout)


def everywhere(*values: str) -> dict[str, list[str]]:
    return {name: sorted(values) for name in NAMES}


def test_the_register_is_shown_with_all_targets(job: Several) -> None:
    job.epoch(job.run(), 0, "a")
    shown = parsed("register", "show", JOB, "--sinks", job.file())
    assert [(one["number"], one["name"]) for one in shown["sinks"]] == list(enumerate(NAMES))
    assert shown["sinks"][2]["target"] == job.bucket.options["path"]
    assert (shown["frontier"], shown["moved_to"]) == (0, None)
    told = abs_("register", "show", JOB, "--url", job.url).stdout
    assert "2 items: s3://" in told


def test_what_is_decided_is_listed_and_committed_in_all_targets(job: Several) -> None:
    job.decided(job.run(), 0, "a", "b")
    listed = parsed("in-doubt", "list", "--sinks", job.file())
    assert {one["fate"] for one in listed} == {"decided: will be committed"}
    assert len(listed) == 3
    alone = abs_("in-doubt", "commit", JOB, "--url", job.url)
    assert isinstance(alone.exception, ConfigError)
    assert "--sinks" in str(alone.exception)
    assert not any(job.values().values()), "by its own register's place alone nothing is committed"
    done = abs_("in-doubt", "commit", JOB, "--sinks", job.file())
    assert done.exit_code == 0, (done.output, done.exception)
    assert job.values() == everywhere("a", "b")
    assert abs_("in-doubt", "list", "--sinks", job.file()).exit_code == 0


def test_what_no_decision_can_name_is_aborted_in_all_targets(job: Several) -> None:
    zombie, newer = job.run(), job.run()
    job.write(zombie, 0, "a")
    state = job.state(zombie)
    # A newer run that dies before it sweeps.
    raised = replace(state, generation=2, run="run-9", superseded=(state.run,))
    stored = newer.targets.register().load(JOB)
    assert stored is not None
    newer.targets.register().compare_and_set(JOB, stored.version, raised)
    listed = parsed("in-doubt", "list", "--sinks", job.file())
    assert [one["fate"] for one in listed] == ["will be aborted"] * 3
    assert abs_("in-doubt", "abort", JOB, "--sinks", job.file()).exit_code == 0
    assert parsed("in-doubt", "list", "--sinks", job.file()) == []
    assert not any(job.values().values())


def test_a_file_that_names_another_target_is_refused(job: Several) -> None:
    job.decided(job.run(), 0, "a")
    with psycopg.connect(job.url, autocommit=True) as connection:
        connection.execute("create table other (key text, value text)")
    refused = abs_("in-doubt", "commit", JOB, "--sinks", job.file(dbtable="other"))
    assert isinstance(refused.exception, ConfigError)
    assert "payments writes to" in str(refused.exception)
    assert not any(job.values().values())


@pytest.mark.parametrize("to", ["alerts", "items"])
def test_a_register_is_moved_with_what_is_decided_committed_first(job: Several, to: str) -> None:
    old = job.run()
    job.epoch(old, 0, "a")
    job.decided(old, 1, "b")
    moved = abs_("register", "move", JOB, "--sinks", job.file(), "--to-sink", to)
    assert moved.exit_code == 0, (moved.output, moved.exception)
    assert job.values() == everywhere("a", "b")
    with pytest.raises(IdentityError, match="was moved to"):
        job.run().begin(2)
    run = job.run()
    who = Identity(JOB, run.name.lineage, run.name.run, joined(run.targets.identities()))
    job.adopt = consent.to_adopt(job.state(run), who, 2)
    with pytest.raises(IdentityError, match="was moved to"):
        job.run().begin(2)
    job.adopt = None
    job.register = to
    job.epoch(job.run(), 2, "c")
    assert job.values() == everywhere("a", "b", "c")
    assert parsed("register", "show", JOB, "--sinks", job.file())["frontier"] == 2
    assert parsed("register", "show", JOB, "--url", job.url)["moved_to"] is not None


@pytest.mark.parametrize(
    "command",
    [["register", "rename", JOB, "renamed"], ["job", "reset", JOB, "--yes"]],
    ids=["rename", "reset"],
)
def test_a_file_of_sinks_counts_and_not_the_address_in_the_environment(
    job: Several, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job.epoch(job.run(), 0, "a")
    monkeypatch.setenv("ABS_REGISTER_URL", "kafka://127.0.0.1:1/abs-register")  # nobody answers
    done = abs_(*command, "--sinks", job.file())
    assert done.exit_code == 0, (done.output, done.exception)
    assert job.values() == everywhere("a")
    listed = [each["job"] for each in parsed("register", "list", "--url", job.url)]
    assert listed == (["renamed"] if command[1] == "rename" else [])


def test_a_register_is_not_moved_while_a_system_is_away(
    job: Several, kafka: KafkaService, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = job.run()
    job.decided(run, 0, "a")
    before = job.state(run)
    job.patience = "2"
    file = job.file()
    kafka.kill()
    try:
        with monkeypatch.context() as patch:
            patch.setattr("abs_core.moving.BY_HAND", Patience(seconds=2.0))
            refused = abs_("register", "move", JOB, "--sinks", file, "--to-sink", "items")
    finally:
        kafka.start()
    assert isinstance(refused.exception, UnavailableError), (refused.output, refused.exception)
    job.patience = None
    file = job.file()
    left = job.state(run)
    assert left.moved_to is None
    assert left.open == before.open
    assert abs_("register", "move", JOB, "--sinks", file, "--to-sink", "items").exit_code == 0
    assert job.values() == everywhere("a")


def test_doctor_looks_at_all_sinks(job: Several) -> None:
    found = parsed("doctor", "--sinks", job.file())
    assert set(found["sinks"]) == set(NAMES)
    assert {one["guarantee"]["protocol"] for one in found["sinks"].values()} == {"2pc"}
    assert found["findings"] == []
    bad = abs_("doctor", "--sinks", job.file(dbtable="nowhere"))
    assert (bad.exit_code, "nowhere" in bad.stdout) == (1, True)


def test_prepared_transactions_of_several_sinks_are_added_up_per_server(
    job: Several, tmp_path: Path
) -> None:
    file = tmp_path / "two.toml"
    table = (
        '[sinks.{0}]\nformat = "abs-postgres"\n'
        'options = {{ url = "{1}", dbtable = "payments", stateschema = "{2}" }}\n'
    )
    apart = table.format("one", job.url, "abs") + table.format("two", job.url, "other")
    file.write_text(apart)
    with psycopg.connect(job.url) as connection:
        most = connection.execute("select current_setting('max_prepared_transactions')::int")
        (room,) = most.fetchone() or (0,)
    tasks = room // 2 + 1  # each alone fits
    found = parsed("doctor", "--sinks", file, "--tasks", tasks)
    assert [one["severity"] for one in found["findings"]] == ["error"]
    assert f"prepares {2 * tasks} transactions" in found["findings"][0]["what"]
    assert not [
        f for s in found["sinks"].values() for f in s["findings"] if f["severity"] == "error"
    ]
    file.write_text(apart.replace("other", "abs"))
    shared = parsed("doctor", "--sinks", file, "--tasks", tasks)
    assert f"prepares {tasks} transactions" in shared["findings"][0]["what"]


def test_doctor_asks_for_wals_prepared_transaction_where_another_system_is_beside(
    store: S3Service, prefix: str, tmp_path: Path
) -> None:
    def file(**kinds: tuple[str, dict[str, str]]) -> Path:
        lines = []
        for name, (kind, options) in kinds.items():
            lines += [f"[sinks.{name}]", f'format = "{kind}"', f"[sinks.{name}.options]"]
            lines += [f"{key} = {json.dumps(text)}" for key, text in options.items()]
        path = tmp_path / "job.toml"
        path.write_text("\n".join(lines))
        return path

    def errors(path: Path) -> list[str]:
        found = parsed("doctor", "--sinks", path)["sinks"]["payments"]["findings"]
        return [one["what"] for one in found if one["severity"] == "error"]

    with NativePostgres(settings={"max_prepared_transactions": "0"}) as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("create table payments (key text, value text)")
        table = {"url": server.url, "dbtable": "payments", "protocol": "wal"}
        payments = ("abs-postgres", table)
        assert errors(file(payments=payments)) == []
        (beside,) = errors(file(payments=payments, items=("abs-s3", Bucket(store, prefix).options)))
        assert "max_prepared_transactions" in beside


def test_every_target_is_audited_and_one_that_lacks_a_row_is_found(
    job: Several, tmp_path: Path
) -> None:
    rows = [f'{{"id": {n}}}' for n in range(5)]
    job.epoch(job.run(), 0, *rows)
    records, table = tmp_path / "records.json", tmp_path / "table.json"
    records.write_text("\n".join(rows) + "\n")
    table.write_text("".join(json.dumps({"key": row, "value": row}) + "\n" for row in rows))
    job.audit = {
        "payments": (str(table), "key"),
        "alerts": (str(records), "id"),
        "items": ("sink:payments", "key"),
    }
    clean = abs_("audit", "--sinks", job.file())
    assert clean.exit_code == 0, (clean.output, clean.exception)
    with psycopg.connect(job.url, autocommit=True) as connection:
        connection.execute("delete from payments where key like '%3%'")
    found = abs_("audit", "--sinks", job.file(), "--json")
    assert found.exit_code == 1, (found.output, found.exception)
    reports = json.loads(found.stdout)["sinks"]
    counts = {name: (r["missing"], r["unexpected"]) for name, r in reports.items()}
    assert counts == {"payments": (1, 0), "alerts": (0, 0), "items": (0, 1)}


def test_an_epoch_that_is_missing_in_one_target_is_named(job: Several, tmp_path: Path) -> None:
    rows = [[f'{{"id": {n}}}' for n in ids] for ids in (range(3), range(3, 5))]
    run = job.run()
    epochs = [
        [json.dumps({"key": row, "value": row, **json.loads(row)}) for row in epoch]
        for epoch in rows
    ]
    files = [tmp_path / f"{number}.json" for number in range(len(epochs))]
    for number, (file, lines) in enumerate(zip(files, epochs, strict=True)):
        job.epoch(run, number, *rows[number])
        file.write_text("\n".join(lines))
    job.spark = checkpoint_of(tmp_path / "spark", files)
    records = str(tmp_path / "*.json")
    job.audit = {"payments": (records, "key"), "alerts": (records, "id"), "items": (records, "key")}
    job.columns = {"payments": "value", "alerts": "id", "items": "value"}
    clean = abs_("audit", "--sinks", job.file(), "--epochs")
    assert clean.exit_code == 0, (clean.output, clean.exception)
    assert "CLEAN  epoch by epoch: 2 looked for in payments, alerts, items; 2 are" in clean.output
    with psycopg.connect(job.url, autocommit=True) as connection:
        connection.execute("delete from payments where value = any(%s)", [rows[1]])
    torn = abs_("audit", "--sinks", job.file(), "--epochs", "--json")
    assert torn.exit_code == 1, (torn.output, torn.exception)
    found = {one["epoch"]: one for one in json.loads(torn.stdout)["epochs"]}
    assert [found[0]["whole"], found[1]["whole"]] == [True, False]
    there = {name: held["actual"] for name, held in found[1]["found"].items()}
    assert there == {"payments": 0, "alerts": 2, "items": 2}


def checkpoint_of(folder: Path, files: list[Path]) -> Path:
    """What Spark keeps of a query that reads a folder, a file an epoch."""
    for name in ("offsets", "sources/0"):
        (folder / name).mkdir(parents=True)
    for epoch, file in enumerate(files):
        (folder / "offsets" / str(epoch)).write_text(f'v1\n{{}}\n{{"logOffset":{epoch}}}')
        entry = json.dumps({"path": file.as_uri(), "batchId": epoch})
        (folder / "sources" / "0" / str(epoch)).write_text(f"v1\n{entry}")
    return folder


def test_nothing_of_a_file_with_a_password_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    for text in ('password = "geheim"', '[sinks.a]\nformat = "x"\noptions = "geheim', "[sinks]"):
        file.write_text(text)
        refused = abs_("doctor", "--sinks", file)
        assert isinstance(refused.exception, ConfigError)
        assert "geheim" not in refused.output + str(refused.exception)


def test_the_file_of_the_docs_is_read_and_its_commands_are_known(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/several-sinks.md").read_text()
    file = tmp_path / "job.toml"
    file.write_text(page.partition("```toml\n")[2].partition("```")[0])
    read = SinksFile.read(file)
    assert (read.job, read.register, [sink.name for sink in read.sinks]) == (
        "payments",
        "table",
        ["table", "alerts", "archive"],
    )
    for sink in read.sinks:
        assert options_of(sink).common.protocol == "2pc"
        assert sink.audit["key"] == "id"
    commands = [line for line in page.splitlines() if line.startswith("abs ") and "--sinks" in line]
    assert len(commands) == 8
    for line in commands:
        words = line.split("   ")[0].split()
        group = 2 if words[1] in ("register", "in-doubt") else 1
        shown = CliRunner().invoke(app, [*words[1 : 1 + group], "--help"], env={"COLUMNS": "200"})
        assert shown.exit_code == 0
        for option in (word for word in words if word.startswith("--")):
            assert option in shown.stdout, line
