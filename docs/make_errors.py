"""Writes ``docs/reference/errors.md``: every kind of error, from ``abs_cli/errors.toml``.

python docs/make_errors.py
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from abs_cli.explain_error import Case, cases, kinds

PAGE = Path(__file__).parent / "reference" / "errors.md"
HEAD = """# Errors

`python docs/make_errors.py` writes this page. Every error of abs-sinks ends with a code in brackets,
with what it happened to, and with what to do:

    There is no topic payments. [ABS-PREFLIGHT, job payments] What to do: create it ...

In Spark's log, read the sentence after `abs_core.errors.`; the stack traces around it add nothing.
Errors of tasks name the machine (`on executor HOST`). A code never changes.

`abs explain-error LOG --url URL` reads the last error in a log, asks the target for the job's register
and handles, and prints the section that fits, with its commands filled in. In the commands below JOB,
EPOCH and HANDLE are those of the error, and URL is
[the address of the target](../how-to/operations.md#commands); a job with several sinks takes
`--sinks FILE` in its place.

Two errors come from Spark itself. `CONCURRENT_STREAM_LOG_UPDATE` means that another driver runs the
query on the same checkpoint and has taken over; both wrote through one register, so no row is lost or
doubled: do as for [ABS-FENCED](#abs-fenced). "Python worker failed to connect back" means that the
driver's machine is so busy that a Python process did not start within Spark's 10 seconds: restart.
"""


def section(code: str, found: list[Case]) -> str:
    """The section of a code."""
    names = {kind.code: kind.__name__ for kind in kinds()}
    lines = [f"## {code}", "", f"`{names[code]}`"]
    for case in found:
        if case.sign:
            lines += ["", f'**The text says** "{case.sign}":']
        lines += ["", case.meaning, ""]
        lines += [f"{number}. {step}" for number, step in enumerate(case.steps, 1)]
        if case.more:
            title = case.more.rpartition("#" if "#" in case.more else "/")[2]
            title = title.removesuffix(".md").replace("-", " ")
            lines += ["", f"More: [{title}](../{case.more})"]
    return "\n".join(lines) + "\n"


def written() -> str:
    parts = [section(code, list(found)) for code, found in groupby(cases(), lambda one: one.code)]
    return "\n".join([HEAD, *parts])


if __name__ == "__main__":
    PAGE.write_text(written())
