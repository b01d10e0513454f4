"""Which files are in which epoch: read from a checkpoint as Spark writes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from abs_audit.checkpoint import epochs_in, files_of_epochs
from abs_core.errors import ConfigError


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Three epochs; the first two entries of the list of files are compacted, as every tenth is."""
    for name in ("offsets", "sources/0"):
        (tmp_path / name).mkdir(parents=True)
    for epoch, end in ((0, 0), (1, 1), (2, 3)):
        (tmp_path / "offsets" / str(epoch)).write_text(
            f'v1\n{{"conf": {{}}}}\n{{"logOffset":{end}}}'
        )
    (tmp_path / "offsets" / ".0.crc").write_bytes(b"crc")
    listed(tmp_path, "0", [0])
    listed(tmp_path, "1.compact", [0, 1])
    listed(tmp_path, "2", [2])
    listed(tmp_path, "3", [3])
    return tmp_path


def listed(checkpoint: Path, name: str, entries: list[int]) -> None:
    lines = [
        json.dumps({"path": f"file:///in/day%20{entry}.parquet", "timestamp": 1, "batchId": entry})
        for entry in entries
    ]
    (checkpoint / "sources" / "0" / name).write_text("\n".join(["v1", *lines]))


def test_each_epoch_has_the_files_of_its_range(checkpoint: Path) -> None:
    days = [f"/in/day {entry}.parquet" for entry in range(4)]
    expected = {0: (days[0],), 1: (days[1],), 2: (days[2], days[3])}
    assert files_of_epochs(checkpoint) == expected


def test_an_epoch_whose_beginning_spark_has_deleted_is_left_out(checkpoint: Path) -> None:
    (checkpoint / "offsets" / "0").unlink()
    assert list(files_of_epochs(checkpoint)) == [2]


def test_another_sources_checkpoint_is_an_error(checkpoint: Path) -> None:
    (checkpoint / "offsets" / "1").write_text('v1\n{}\n{"flights":{"0":7}}')
    with pytest.raises(ConfigError, match="no field 'logOffset'"):
        files_of_epochs(checkpoint)


def test_a_checkpoint_of_two_sources_is_an_error(checkpoint: Path) -> None:
    (checkpoint / "offsets" / "1").write_text('v1\n{}\n{"logOffset":1}\n{"logOffset":1}')
    with pytest.raises(ConfigError, match="reads 2 sources"):
        files_of_epochs(checkpoint)


def test_a_checkpoint_that_is_not_here_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no checkpoint"):
        epochs_in(f"file://{tmp_path}/nowhere")
