"""CONTRIBUTING.md: its paths and targets are there, its commands run; and the files beside it hold."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from abs_core.release import RELEASE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
HOOKS = {
    name: (" ".join(entry.removeprefix(">-").split()), language)
    for name, entry, language in re.findall(
        r"- id: (\S+)$.*?entry: (.*?)\n +language: (\w+)$",
        (ROOT / ".pre-commit-config.yaml").read_text(),
        re.MULTILINE | re.DOTALL,
    )
}
"""By id: the command and the language."""


def missing(text: str) -> list[str]:
    """The paths in it, in back-quotes, that are not in the repository."""
    paths = re.findall(r"`([a-z_./-]+/[a-z_./-]*[a-z])`|`([a-z_./-]+/)`", text)
    return [path for pair in paths for path in pair if path and not (ROOT / path).exists()]


def test_every_path_that_it_names_is_there_and_a_wrong_one_is_told() -> None:
    assert missing(PAGE) == []
    assert missing("`abs_core/codex.py`, `abs_core/codec.py`, `rooms/`") == [
        "abs_core/codex.py",
        "rooms/",
    ]


def test_every_target_of_make_that_it_names_is_there() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = set(re.findall(r"`make ([a-z]+)`", PAGE))
    assert named
    assert named <= set(targets)


def test_each_command_that_runs_one_test_finds_tests() -> None:
    commands = re.findall(r"^python -m pytest (.+)$", PAGE, re.MULTILINE)
    assert len(commands) == 2
    for words in commands:
        script = f"{sys.executable} -m pytest --collect-only -q {words}"
        done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "::test_" in done.stdout


def test_the_changelog_begins_with_this_release_and_names_the_first() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == f"[Unreleased] - {RELEASE}" or headings[0].startswith(f"[{RELEASE}] - ")
    assert headings[-1].startswith("[0.1.0] - ")


def test_hooks_run_tools_of_the_environment_and_download_nothing() -> None:
    assert [*HOOKS] == ["ruff", "ruff-format", "lint-imports", "subject"]
    assert {language for _entry, language in HOOKS.values()} == {"system"}
    dev = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    tools = [entry.split()[0] for entry, _language in HOOKS.values()]
    assert tools == [".venv/bin/ruff", ".venv/bin/ruff", ".venv/bin/lint-imports", "bash"]
    assert {"ruff", "import-linter"} <= {re.split("[><=]", name)[0] for name in dev["dev"]}


@pytest.mark.parametrize(
    ("subject", "fits"),
    [
        ("kafka: refuse a compacted topic under idempotent", True),
        ("Merge branch 'hall'", True),
        ("core: " + "x" * 66, True),
        ("core: " + "x" * 67, False),
        ("Kafka sink: Refuses", False),
        ("refuse a compacted topic", False),
    ],
)
def test_the_hook_knows_how_a_commit_is_named(subject: str, fits: bool, tmp_path: Path) -> None:
    (tmp_path / "message").write_text(f"{subject}\n\nkafka: what the body says\n")
    script = f"{HOOKS['subject'][0]} {tmp_path / 'message'}"
    done = subprocess.run(["bash", "-c", script], check=False)
    assert (done.returncode == 0) is fits
