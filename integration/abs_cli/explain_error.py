"""``abs explain-error``: what an error in a log means, what its job looks like now, and what to do."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from abs_cli.output import AsJson, done, errors, people, print_json
from abs_cli.sites import Registers, Schema, Sinks, Url
from abs_core import protocol
from abs_core.errors import AbsError, ConfigError

_FOUND = re.compile(
    r"(?P<what>[^\n]*?) \[(?P<code>ABS-[A-Z-]+)(?P<where>(?:, [^\]\n]*)?)\](?P<rest>[^\n]*)"
)
_BEFORE = re.compile(r"^(?:.*?(?:(?:abs_core\.errors\.|abs-sinks: )\w+: |error: )|\w+Error: )")
"""What a log and Spark's traceback print before the sentence."""


@dataclass(frozen=True, slots=True)
class Reported:
    """An error as its text names it; ``remedy``: what stands behind the brackets."""

    code: str
    what: str
    remedy: str
    job: str | None
    epoch: int | None
    handle: str | None


def reported(text: str) -> Reported:
    """The last error of this project in a text.

    Raises:
        ConfigError: there is none.
    """
    from abs_spark.hooks import sentence_for_spark

    match = next(iter([*_FOUND.finditer(text)][-1:]), None)
    after = text if match is None else text[match.end() :]
    if sentence := sentence_for_spark(after):
        return reported(sentence)
    if match is None:
        raise ConfigError(
            "There is no error of abs-sinks in this text: none has a code [ABS-...].",
            remedy="give the text of the error, or the log of the driver, from the first line that "
            "names abs_core.errors.",
        )
    named = dict(part.split(" ", 1) for part in match["where"].split(", ") if " " in part)
    epoch = named.get("epoch", "")
    return Reported(
        match["code"],
        _BEFORE.sub("", match["what"]).strip(),
        match["rest"].strip(),
        named.get("job"),
        int(epoch) if epoch.isdigit() else None,
        named.get("handle"),
    )


def filled(step: str, error: Reported, url: str | None) -> str:
    """The step, with what the error and the command name in place of capitals."""
    values = {"JOB": error.job, "EPOCH": error.epoch, "HANDLE": error.handle}
    if url is not None and "://" in url and "@" not in url:  # no secret on a screen
        values["URL"] = url
    for name, value in values.items():
        if value is not None:
            step = re.sub(rf"\b{name}\b", lambda _, value=value: str(value), step)  # type: ignore[misc]
    return step


def explain_error(
    error: Annotated[
        str,
        typer.Argument(
            metavar="TEXT|FILE|CODE|-",
            help="An error's text, a log, a code, or - for standard input.",
        ),
    ],
    url: Url = None,
    stateschema: Schema = "abs",
    sinks: Sinks = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Say what an error means, what its job looks like now, and what to do.

    Reads the last error in the text; a code alone, such as ABS-FENCED, shows all that it may mean.
    With --url or --sinks it also asks the target for the job's register and handles; nothing is
    changed.
    """
    if error in {one.code for one in cases()}:
        _tell_code(error, as_json=as_json)
        return
    failure = reported(_text(error))
    case = case_of(failure.code, f"{failure.what} {failure.remedy}")
    if case is None:
        raise ConfigError(
            f"This release does not know the code {failure.code}.", remedy="ask a newer release."
        )
    steps = [filled(step, failure, url) for step in case.steps]
    state = _state(failure, url, stateschema, sinks) if url or sinks else []
    if as_json:
        print_json(
            asdict(failure)
            | {"meaning": case.meaning, "do": steps, "see": _page(case), "now": state}
        )
        return
    _show(failure, case, steps, state)


def _text(source: str) -> str:
    if source == "-":
        return sys.stdin.read()
    try:
        return Path(source).read_text(errors="replace")
    except OSError:
        return source


def _page(case: Case) -> str:
    """The page on this machine: the wheel has the pages, as a clone has them."""
    here = Path(__file__).parent
    pages = here / "docs" if (here / "docs").exists() else here.parents[1] / "docs"
    return str(pages / (case.more or "reference/errors.md"))


def _tell_code(code: str, *, as_json: bool) -> None:
    """Print every situation that a code stands for."""
    situations = [case for case in cases() if case.code == code]
    if as_json:
        print_json([{**asdict(case), "see": _page(case)} for case in situations])
        return
    for case in situations:
        sign = f', where the text says "{case.sign}"' if case.sign else ""
        people.print(f"[bold]{code}[/]{escape(sign)}", soft_wrap=True)
        _show_case(case, list(case.steps))


def _show(failure: Reported, case: Case, steps: list[str], state: list[str]) -> None:
    people.print(f"[bold]{failure.code}[/]  {escape(failure.what)}", soft_wrap=True)
    if failure.remedy:
        people.print(escape(failure.remedy), soft_wrap=True)
    _show_case(case, steps, state)


def _show_case(case: Case, steps: Sequence[str], state: Sequence[str] = ()) -> None:
    people.print(escape(case.meaning), soft_wrap=True)
    for line in state:
        people.print(f"now: {escape(line)}", soft_wrap=True)
    for number, step in enumerate(steps, 1):
        people.print(f"{number}. {escape(step)}", soft_wrap=True)
    people.print(f"see: {_page(case)}", soft_wrap=True)


def _state(failure: Reported, url: str | None, schema: str, sinks: Path | None) -> list[str]:
    """What the register and the target say of the job, a line each."""
    if failure.job is None:
        return []
    try:
        registers = Registers.at(url, schema, sinks)
        stored = registers.register.load(failure.job)
        if stored is None:
            return [f"no register of job {failure.job} at {registers.where}"]
        state = stored.state
        doubts = registers.in_doubt(failure.job)
    except AbsError as failed:
        errors.print(f"the target was not asked: {escape(str(failed))}", soft_wrap=True)
        return []
    lines = [f"job {failure.job} has committed {done(state)}; run {state.generation}"]
    lines += [f"epoch {one.epoch} is decided and not finished" for one in state.open]
    lines += [
        f"handle {one.handle}: {protocol.fate(state, one.handle)}"
        for one in doubts
        if one.handle.job == failure.job
    ]
    return lines or ["nothing in doubt"]


@dataclass(frozen=True, slots=True)
class Case:
    """One situation that an error reports.

    Args:
        code: of the error's class.
        meaning: what happened, and what it did to the data.
        steps: what to do, in this order; a command stands in backticks.
        sign: words of the error's text by which the situation is told from others of the same code;
            empty for the code's general case.
        more: page of the documentation, with its anchor.
    """

    code: str
    meaning: str
    steps: tuple[str, ...]
    sign: str = ""
    more: str = ""


@cache
def cases() -> tuple[Case, ...]:
    """All of them, in the order of the page."""
    content = tomllib.loads((files("abs_cli") / "errors.toml").read_text())
    return tuple(Case(**{**one, "steps": tuple(one["steps"])}) for one in content["case"])


def case_of(code: str, text: str) -> Case | None:
    """The situation that a text of this code reports; None for an unknown code."""
    of_code = [case for case in cases() if case.code == code]
    signed = [case for case in of_code if case.sign and case.sign in text]
    return next(iter(signed + [case for case in of_code if not case.sign]), None)


def kinds(root: type[AbsError] = AbsError) -> Iterator[type[AbsError]]:
    """The class and all below it that have a code of their own."""
    if "code" in vars(root):
        yield root
    for below in root.__subclasses__():
        yield from kinds(below)
