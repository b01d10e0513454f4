"""What each engine of the demo needs on a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from abs_core.errors import ConfigError
from abs_demo.engine import Engine


def test_the_embedded_runtime_needs_no_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    Engine.EMBEDDED.check_machine()
    with pytest.raises(ConfigError, match="there is no java"):
        Engine.SPARK.check_machine()
