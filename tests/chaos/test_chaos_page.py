"""The report as a page says what the outcome says, and opens anywhere."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

from typer.testing import CliRunner

from abs_audit import Differences, Report, Sample
from abs_chaos.blame import Blame
from abs_chaos.killing import Killed
from abs_chaos.moments import Moment
from abs_chaos.outcome import Outcome
from abs_chaos.page import page, picture
from abs_cli.main import app

KILL = Killed(3.0, Moment.COMMITTED, Moment.COMMITTED, 5, 0, 4, "at epoch 5: <b>", 2.5)
BLOW = replace(KILL, at_seconds=6.0, processes=0, server="kafka frozen for 2.0 s", away_s=2.0)
SAMPLE: dict[str, tuple[Sample, ...]] = {"duplicate": (Sample({"id": "7<"}, 1),)}
DIFFERENCES = Differences(100, 120, 0, 20, 0, 0, 0, 20, samples=SAMPLE)
REPORT = Report("in", "out", ("id",), ("id",), DIFFERENCES, reads=2, moved=0, looks=(), seconds=1.0)
OUTCOME = Outcome(
    seed=7,
    asked=1,
    asked_blows=1,
    events=(KILL, BLOW),
    failures=0,
    job_seconds=10.0,
    report=REPORT,
    blamed=(Blame(5, 20, 40, (1,)),),
    epochs=((1.0, 0), (2.5, 1)),
    visible=((1.0, 20), (9.0, 120)),
)


class Seen(HTMLParser):
    """Tags with their classes, and text; a tag that is not closed in order is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.classes: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.classes += (given.get("class") or "").split()
        self.links += [value for name in ("src", "href") if (value := given.get(name))]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_kills_servers_epochs_and_rows_are_on_the_time_line() -> None:
    seen = Seen(page(OUTCOME))
    marks = {name: seen.classes.count(name) for name in ("kill", "away", "epoch", "rows", "due")}
    assert marks == {"kill": 1, "away": 1, "epoch": 2, "rows": 1, "due": 1}
    assert "Not exactly once" in seen.text
    assert "20 rows doubled" in seen.text
    assert "epoch 5: 20 rows too many, after #1" in seen.text
    assert "#2, 6.0 s: kafka frozen for 2.0 s" in seen.text
    assert "at epoch 5: <b>" in seen.text, "text is text"
    assert "id=7<" in seen.text
    assert seen.links == [], "it needs no other file"


def test_a_clean_run_says_so_and_blames_nobody() -> None:
    clean = Differences(100, 100, 0, 0, 0, 0, 0, 0)
    seen = Seen(page(replace(OUTCOME, report=replace(REPORT, differences=clean), blamed=())))
    assert "Not exactly once" not in seen.text
    assert "Exactly once" in seen.text
    assert "Which kill" not in seen.text


def test_the_picture_is_a_file_of_its_own_with_verdict_and_time_line() -> None:
    drawn = ET.fromstring(picture(OUTCOME))
    classes = [element.get("class") for element in drawn.iter()]
    assert (classes.count("kill"), classes.count("away"), classes.count("epoch")) == (1, 1, 2)
    text = "".join(drawn.itertext())
    assert "Not exactly once: 20 rows doubled" in text
    assert "at epoch 5: <b>" in text
    clean = Differences(100, 100, 0, 0, 0, 0, 0, 0)
    right = picture(replace(OUTCOME, report=replace(REPORT, differences=clean), blamed=()))
    assert "Exactly once" in right
    assert "Not exactly once" not in right


def test_a_run_without_kills_and_counts_has_a_page() -> None:
    bare = replace(OUTCOME, events=(), epochs=(), visible=(), job_seconds=0.0, asked=0)
    assert "rows" in Seen(page(bare)).classes


def test_a_report_of_another_kind_is_refused_before_the_job_starts() -> None:
    words = ["--expected", "a", "--actual", "b", "--report", "out.pdf", "--", "true"]
    done = CliRunner().invoke(app, ["chaos", *words])
    assert done.exit_code == 2
    assert "--report" in done.output
