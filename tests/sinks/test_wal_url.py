"""Where the write-ahead log lies is the same folder for every process, or it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from abs_core.errors import OptionError
from abs_sinks.wal import segment_store


@pytest.mark.parametrize("url", ["wal", "./wal", "file:wal", "~nobody-of-this-name/wal"])
def test_a_log_that_each_process_would_look_for_elsewhere_is_refused(url: str) -> None:
    with pytest.raises(OptionError) as refused:
        segment_store(url)
    assert "file:///" in refused.value.remedy


def test_a_path_from_the_root_on_is_the_folder(tmp_path: Path) -> None:
    for url in (str(tmp_path), tmp_path.as_uri()):
        assert segment_store(url).url == tmp_path.as_uri()
    assert segment_store("~/wal").url == (Path.home() / "wal").as_uri()
