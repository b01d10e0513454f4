"""The file that names a job's sinks: it is read, and nothing secret of it is shown."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from abs_cli.main import app
from abs_cli.sinksfile import SinksFile
from abs_cli.sites import Site
from abs_core.errors import ConfigError
from tests.kit.command import abs_


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
        assert Site.of(sink).options.common.protocol == "2pc"
        assert sink.audit["key"] == "id"
    commands = [line for line in page.splitlines() if line.startswith("abs ") and "--sinks" in line]
    assert len(commands) == 9
    for line in commands:
        words = line.split("   ")[0].split()
        group = 2 if words[1] in ("register", "in-doubt") else 1
        shown = CliRunner().invoke(app, [*words[1 : 1 + group], "--help"], env={"COLUMNS": "200"})
        assert shown.exit_code == 0
        for option in (word for word in words if word.startswith("--")):
            assert option in shown.stdout, line
