"""Each read of Spark's checkpoint fails once, the first one too: none is taken for absence."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from abs_core.births.rules import Failed
from abs_core.certificate import Certificate
from abs_core.errors import OptionError
from abs_core.patience import Patience
from abs_spark.checkpoint import ownfile
from abs_spark.checkpoint import spark_files as checkpoint
from abs_spark.checkpoint.certificates import CheckpointCertificates, certificates_of
from abs_spark.checkpoint.failures import FailedBatch
from abs_spark.checkpoint.spark_files import fingerprint, is_readable, query_id, with_checkpoint

FIRST = Certificate("first", "a" * 16, "here", 3, 6, 7)
SECOND = Certificate("second", "b" * 16, "here", 2, 6, 7)
PATIENCE = Patience(2.0)
_spellings = count(1)


class Failing(fs.LocalFileSystem):  # type: ignore[misc]
    """The file system, one of whose reads fails; what it was asked is counted."""

    asked = 0
    fails_at = 0

    def get_file_info(self, *given: Any) -> Any:
        self._ask()
        return super().get_file_info(*given)

    def open_input_stream(self, *given: Any) -> Any:
        self._ask()
        return super().open_input_stream(*given)

    def _ask(self) -> None:
        Failing.asked += 1
        if Failing.asked == Failing.fails_at:
            raise OSError("it does not answer (on purpose)")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "metadata").write_text('{"id":"0123-4567"}')
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "8").write_text("v1")
    CheckpointCertificates(str(tmp_path)).write(FIRST)
    CheckpointCertificates(str(tmp_path), "second").write(SECOND)
    FailedBatch(str(tmp_path), "first").note(5)
    for module in (checkpoint, ownfile):
        monkeypatch.setattr(
            module, "locate", lambda place: (Failing(), place.removeprefix("file:"))
        )
    return tmp_path


def told(folder: Path, first: int) -> dict[str, Any]:
    """All that a start asks of the checkpoint, in a process that has never read it.

    Args:
        first: which of the questions comes first.
    """
    place = "file:" + "/." * next(_spellings) + str(folder)
    patience = with_checkpoint(PATIENCE)

    def certificate(job: str) -> Certificate | None:
        store = patience.retry(lambda: certificates_of(place, job, ()))
        return patience.retry(store.read).certificate

    asks: list[tuple[str, Callable[[], Any]]] = [
        ("query", lambda: query_id(place)),
        ("first", lambda: certificate("first")),
        ("second", lambda: certificate("second")),
        ("failed", lambda: patience.retry(FailedBatch(place, "first").read)),
        ("input", lambda: fingerprint(place, 8, PATIENCE)),
        ("kept", lambda: is_readable(place)),
    ]
    return {name: ask() for name, ask in (*asks[first:], *asks[:first])}


@pytest.mark.parametrize("first", range(6))
def test_no_read_that_fails_is_taken_for_absence(folder: Path, first: int) -> None:
    Failing.asked = Failing.fails_at = 0
    right = told(folder, first)
    reads = Failing.asked
    assert None not in right.values()
    assert (right["first"], right["second"], right["failed"]) == (FIRST, SECOND, Failed(5))
    wrong = {}
    for fails_at in range(1, reads + 1):
        Failing.asked, Failing.fails_at = 0, fails_at
        found = told(folder, first)
        if found != right:
            wrong[fails_at] = {name: found[name] for name in found if found[name] != right[name]}
    assert not wrong


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_place_that_holds_no_query_is_refused_and_both_places_are_named(
    tmp_path: Path, scheme: str
) -> None:
    other, real = f"{scheme}{tmp_path}/other", f"file:{tmp_path}/real"
    with pytest.raises(OptionError, match="neither offsets nor metadata") as refused:
        checkpoint.check_holds_query(other, real)
    assert other in str(refused.value)
    assert real in str(refused.value)


@pytest.mark.parametrize("has", ["offsets", "metadata"])
def test_a_place_that_holds_a_part_of_a_query_is_taken(tmp_path: Path, has: str) -> None:
    (tmp_path / has).mkdir()
    checkpoint.check_holds_query(str(tmp_path), None)


def test_a_path_that_spark_may_have_elsewhere_is_taken(tmp_path: Path) -> None:
    for real in (None, "hdfs://namenode/checkpoints/real"):
        checkpoint.check_holds_query(f"{tmp_path}/other", real)
