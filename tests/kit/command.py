"""The command ``abs``, in the test's own process."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from abs_cli.main import app


def abs_(*arguments: object, answer: str | None = None) -> Result:
    """Call it; ``answer``: what is typed in."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=answer)


def abs_prints(code: int, *arguments: object) -> str:
    """What it prints, where it ends with this code."""
    done = abs_(*arguments)
    assert done.exit_code == code, (done.output, done.exception)
    return done.stdout
