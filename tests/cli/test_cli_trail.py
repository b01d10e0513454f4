"""What people do by hand leaves a trail: before it is done, and after; without a secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from abs_cli.trail import noted
from abs_core.errors import ConfigError, UnavailableError


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_act_is_noted_before_and_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "trail.jsonl"
    monkeypatch.setenv("ABS_TRAIL", str(path))
    with noted("abort", "job", "postgresql://me:geheim@db:5432/abs?password=geheim", handles=["h"]):
        (begun,) = lines(path)
        assert (begun["step"], begun["act"], begun["handles"]) == ("begun", "abort", ["h"])
    assert [line["step"] for line in lines(path)] == ["begun", "done"]
    assert lines(path)[1]["at"] == "postgresql://db:5432/abs"
    with noted("commit", "job", "host=db password=geheim"):
        pass
    assert "geheim" not in path.read_text()


def test_an_act_that_fails_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trail.jsonl"
    monkeypatch.setenv("ABS_TRAIL", str(path))
    with pytest.raises(UnavailableError), noted("commit", "job", "kafka://a:1/t"):
        raise UnavailableError("gone")
    assert [(line["step"], line.get("error")) for line in lines(path)] == [
        ("begun", None),
        ("failed", "UnavailableError"),
    ]


def test_what_cannot_be_noted_is_not_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABS_TRAIL", str(tmp_path))  # a folder
    with pytest.raises(ConfigError, match="trail"), noted("abort", "job", "kafka://a:1/t"):
        pytest.fail("it was done all the same")
