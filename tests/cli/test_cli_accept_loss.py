"""`abs in-doubt accept-loss` where a target refuses what is decided, by the steps of the page."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from typer.testing import Result

from abs_core.errors import CorruptionError, RefusedError
from abs_core.model import Committable
from abs_core.wal import FolderSegments
from abs_sinks.kafka.twophase import TwoPhaseCommitter as OnKafka
from abs_sinks.postgres.twophase import TwoPhaseCommitter as OnPostgres
from abs_sinks.s3.twophase import TwoPhaseCommitter as OnS3
from abs_testing.case import Case
from tests.cli.several import JOB, Several, everywhere, parsed
from tests.kit.command import abs_
from tests.kit.kafka import delete_topics

pytestmark = pytest.mark.services

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "when-it-stops.md"
COMMITTERS = {"payments": OnPostgres, "alerts": OnKafka, "items": OnS3}
A, B, C = "a" * 40, "b" * 40, "c" * 40
WAYS = ("payments", "alerts", "alerts-wal", "items")


def command_of_the_page(job: Several) -> list[str]:
    """The command of the procedure, with this job's names."""
    section = PAGE.read_text().split("\n## A target refuses what is decided\n")[1].split("\n## ")[0]
    found = re.findall(r"^ {7}abs (.+)$", section, re.MULTILINE)
    assert len(found) == 1
    named = {"JOB": JOB, "EPOCH": "0", "FILE": str(job.file())}
    return [named.get(word, word) for word in found[0].split()]


def asked(words: Sequence[str], answer: str) -> Result:
    return abs_(*words, answer=f"{answer}\n")


@pytest.mark.parametrize("way", WAYS)
def test_what_a_target_refuses_for_good_is_shown_given_up_by_consent_and_never_comes_back(
    job: Several, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    name = way.partition("-")[0]
    if way == "alerts-wal":
        job.alerts = {"protocol": "wal", "wal": (tmp_path / "wal").as_uri()}
    job.decided(job.run(), 0, A, B)
    with refusing(job, way, monkeypatch):
        told = abs_("in-doubt", "commit", JOB, "--sinks", job.file())
        assert isinstance(told.exception, RefusedError)
        assert "A target does not take what is decided" in str(told.exception)
        assert f"`abs in-doubt accept-loss {JOB} 0`" in str(told.exception)
        assert job.values()[name] == []

        kept = asked(command_of_the_page(job), "n")
        assert kept.exit_code == 1
        assert re.search(rf"refused 2 rows of abs1:\S*:{JOB}:", kept.stderr), kept.stderr
        assert "2 rows of 1 handles are not in the target" in kept.stdout
        assert parsed("register", "show", JOB, "--sinks", job.file())["frontier"] is None
        rest = {**everywhere(A, B), name: []}
        assert job.values() == rest, "what the other targets take is committed"

        accepted = asked(command_of_the_page(job), "y")
        assert accepted.exit_code == 0, (accepted.output, accepted.exception)
    assert parsed("register", "show", JOB, "--sinks", job.file())["frontier"] == 0

    # The target takes everything now; the next run brings nothing of it back.
    job.run().begin(1)
    assert job.values() == rest
    assert abs_("in-doubt", "list", "--sinks", job.file()).exit_code == 0
    job.epoch(job.run(), 1, C)
    assert job.values() == {**everywhere(A, B, C), name: [C]}


@pytest.mark.parametrize("sent", [False, True])
def test_records_that_a_lost_ledger_does_not_prove_are_looked_for_and_accepted(
    job: Several, tmp_path: Path, sent: bool
) -> None:
    """``ledger.gone``: the topic shows whether they are there; each way ends exactly."""
    segments = tmp_path / "wal"
    job.alerts = {"protocol": "wal", "wal": segments.as_uri()}
    run = job.run()
    job.decided(run, 0, A, B)
    if sent:  # by a process that died before it had deleted its segments
        copy = shutil.copytree(segments, tmp_path / "copy")
        made = [c for c in job.state(run).open[0].committables if c.protocol == "wal"]
        for name, spec in run.targets.opened():
            if name == "alerts":
                spec.sink(alone=False).committer().commit(made)
        shutil.copytree(copy, segments, dirs_exist_ok=True)
    delete_topics(job.topic.options.kafka, [job.topic.options.registertopic])
    there = sorted([A, B]) if sent else []

    told = abs_("in-doubt", "commit", JOB, "--sinks", job.file())
    assert isinstance(told.exception, CorruptionError), told.output
    steps = re.search(
        r"look whether the epoch's records are in their topic .* delete its segments in (\S+), and let "
        r"the job go on by `abs (in-doubt accept-loss \S+ \d+)`; if its records were not there, write "
        r"them again from the source under another job name",
        str(told.exception),
    )
    assert steps is not None, told.exception
    assert job.values()["alerts"] == there
    assert steps[1] == segments.as_uri()
    log = FolderSegments(segments)
    log.delete([entry.handle for entry in log.list(JOB) if entry.handle.epoch == 0])
    accepted = abs_(*steps[2].split(), "--sinks", job.file(), "--yes")
    assert accepted.exit_code == 0, (accepted.output, accepted.exception)
    assert parsed("register", "show", JOB, "--sinks", job.file())["frontier"] == 0
    assert job.values() == {**everywhere(A, B), "alerts": there}
    if not sent:
        with Case(job.topic) as case:
            case.run(job="again", lineage="another").epoch(0, [(1, A), (2, B)])
    job.epoch(job.run(), 1, C)
    assert job.values() == everywhere(A, B, C)
    assert abs_("in-doubt", "list", "--sinks", job.file()).exit_code == 0


def refusing(job: Several, way: str, patch: pytest.MonkeyPatch) -> AbstractContextManager[object]:
    """The target refuses to commit: Kafka's topic by its own limit, the others by their answer."""
    if way == "alerts-wal":
        return job.topic.refusing()
    return _refused(COMMITTERS[way], patch)


@contextmanager
def _refused(kind: type, patch: pytest.MonkeyPatch) -> Iterator[None]:
    def commit(self: object, committables: Sequence[Committable]) -> object:
        raise RefusedError("The target refuses (on purpose).", handle=committables[0].handle)

    with patch.context() as inner:
        inner.setattr(kind, "commit", commit)
        yield
