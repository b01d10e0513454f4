"""Which kill did it is told by the epoch whose rows are wrong; else nobody is blamed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tenacity import retry, retry_if_result, stop_after_delay, wait_fixed

from abs_audit import AuditSettings, Files, audit
from abs_chaos.blame import Blame, blame
from abs_chaos.killing import Killed
from abs_chaos.moments import Moment
from abs_chaos.run import VisibleRows

ROWS = 5
COMPARED = AuditSettings(key=("id",))


def killed(*epochs: int | None) -> list[Killed]:
    one = Killed(1.0, Moment.WRITING, Moment.WRITING, 0, 0, 1, "")
    return [replace(one, epoch=epoch) for epoch in epochs]


class Place:
    """Six epochs of a file each, a checkpoint that says so, and a target file."""

    def __init__(self, folder: Path) -> None:
        self.input, self.checkpoint = folder / "input", folder / "checkpoint"
        self.target = folder / "target.json"
        for name in ("offsets", "sources/0"):
            (self.checkpoint / name).mkdir(parents=True)
        self.input.mkdir()
        for epoch in range(6):
            file = self.input / f"{epoch}.json"
            file.write_text("".join(self.lines(epoch)))
            entry = {"path": file.as_uri(), "timestamp": 0, "batchId": epoch}
            (self.checkpoint / "sources" / "0" / f"{epoch}").write_text(f"v1\n{json.dumps(entry)}")
            offset = f'v1\n{{}}\n{{"logOffset":{epoch}}}'
            (self.checkpoint / "offsets" / f"{epoch}").write_text(offset)

    @staticmethod
    def lines(epoch: int) -> list[str]:
        return [json.dumps({"id": epoch * ROWS + n}) + "\n" for n in range(ROWS)]

    def blamed(self, kills: list[Killed], *, checkpoint: bool = True) -> tuple[Blame, ...]:
        sides = Files((str(self.input),)), Files((str(self.target),))
        report = audit(*sides, COMPARED)
        known = self.checkpoint if checkpoint else None
        return blame(known, *sides, COMPARED, report, kills)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.target.write_text("".join(line for epoch in range(6) for line in made.lines(epoch)))
    return made


def test_nobody_is_blamed_for_nothing(place: Place) -> None:
    assert place.blamed(killed(1, 2)) == ()


def test_a_doubled_epoch_is_of_the_kill_that_hit_it(place: Place) -> None:
    place.target.write_text(place.target.read_text() + "".join(place.lines(2)))
    assert place.blamed(killed(1, 2, 4)) == (Blame(2, ROWS, 2 * ROWS, (2,)),)
    assert place.blamed(killed(2, 2)) == (Blame(2, ROWS, 2 * ROWS, (1, 2)),)
    assert "5 rows too many, after #1 or #2" in place.blamed(killed(2, 2))[0].story


def test_a_lost_epoch_is_of_the_kill_in_the_next_one_if_none_hit_it(place: Place) -> None:
    """A sink that lags behind loses what Spark has noted already."""
    left = [line for epoch in range(6) if epoch != 3 for line in place.lines(epoch)]
    place.target.write_text("".join(left))
    assert place.blamed(killed(1, 4)) == (Blame(3, ROWS, 0, (2,)),)
    assert place.blamed(killed(3, 4))[0].kills == (1,)


def test_no_kill_is_blamed_for_what_is_far_from_it(place: Place) -> None:
    place.target.write_text(place.target.read_text() + "".join(place.lines(5)))
    assert place.blamed(killed(1, 2)) == ()


def test_without_a_checkpoint_or_with_another_source_nothing_is_told(place: Place) -> None:
    place.target.write_text(place.target.read_text() + "".join(place.lines(2)))
    assert place.blamed(killed(2), checkpoint=False) == ()
    assert place.blamed(killed(None)) == ()
    for path in (place.checkpoint / "offsets").iterdir():
        path.write_text('v1\n{}\n{"topic":{"0":7}}')
    assert place.blamed(killed(2)) == ()


def test_rows_are_counted_once_they_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("abs_chaos.run._COUNT_EVERY_S", 0.01)
    target = tmp_path / "target.json"
    wait = retry(
        retry=retry_if_result(lambda there: not there),
        wait=wait_fixed(0.01),
        stop=stop_after_delay(60),
    )
    with VisibleRows(Files((str(target),)), "id") as rows:
        target.write_text("".join(Place.lines(0)))
        wait(lambda: rows.counts)()
        target.write_text("".join(Place.lines(0)) * 2)
        wait(lambda: rows.counts[-1][1] == 2 * ROWS)()
    times, counts = zip(*rows.counts, strict=True)
    assert sorted(times) == list(times)
    assert {*counts} <= {0, ROWS, 2 * ROWS}
