"""The outcome as one HTML page: the verdict, a time line, and what was done when; or as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from abs_audit.report import KINDS
from abs_chaos.killing import Killed
from abs_chaos.outcome import Outcome

_WIDTH, _LEFT, _RIGHT = 960, 70, 20
_ROWS_TOP, _ROWS_BOTTOM = 30, 210
_LANES = {"kills": 236, "servers": 262, "epochs": 288}
_BOTTOM = 304

_COLOURS = """
:root { color-scheme: light dark; --bad: #c62828; --good: #2e7d32; --line: #1565c0; --away: #ef6c00;
  --dim: #78909c; --text: #263238 }
@media (prefers-color-scheme: dark) { :root { --bad: #ef5350; --good: #66bb6a; --line: #64b5f6;
  --text: #eceff1 } }
svg { font: 12px system-ui, sans-serif } svg text { fill: var(--text) }
svg .good { fill: var(--good) } svg .bad { fill: var(--bad) } svg .verdict { font-size: 16px }
.axis { stroke: #8888 } .kill { stroke: var(--bad); stroke-width: 2 }
.away { fill: var(--away) } .epoch { stroke: var(--dim) }
.rows { fill: none; stroke: var(--line); stroke-width: 2 }
.due { stroke: var(--good); stroke-dasharray: 5 4 }
"""
"""Of the time line, also where it is a picture by itself."""
_STYLE = f"""{_COLOURS}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2rem auto; padding: 0 1rem }}
h1 {{ font-size: 1.5rem }} h2 {{ font-size: 1.1rem; margin-top: 2rem }}
.good {{ color: var(--good) }} .bad {{ color: var(--bad) }} .dim {{ color: var(--dim) }}
table {{ border-collapse: collapse; width: 100% }}
td, th {{ padding: .25rem .75rem .25rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid #8884 }}
td.n, th.n {{ text-align: right; font-variant-numeric: tabular-nums }}
svg {{ width: 100%; height: auto }}
"""


def picture(outcome: Outcome) -> str:
    """The verdict and the time line as an SVG file, for a page that shows images."""
    kind, verdict = ("good", "Exactly once") if outcome.clean else ("bad", "Not exactly once")
    why = f": {'; '.join(outcome.shortcomings)}" if outcome.shortcomings else ""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -52 {_WIDTH} {_BOTTOM + 78}">',
            f"<style>{_COLOURS}</style>",
            f'<text class="verdict {kind}" x="0" y="-32">{escape(verdict + why)}</text>',
            f'<text x="0" y="-12">{escape(_figures(outcome))}</text>',
            _timeline(outcome),
            "</svg>\n",
        ]
    )


def page(outcome: Outcome) -> str:
    """The page; it needs no other file."""
    verdict = "Exactly once" if outcome.clean else "Not exactly once"
    why = "".join(f"<li>{escape(reason)}</li>" for reason in outcome.shortcomings)
    blamed = "".join(f"<li>{escape(blamed.story)}</li>" for blamed in outcome.blamed)
    return "\n".join(
        [
            "<!doctype html>",
            f"<html lang=en><meta charset=utf-8><title>{verdict} - abs chaos</title>",
            f"<style>{_STYLE}</style>",
            f"<h1 class={'good' if outcome.clean else 'bad'}>{verdict}</h1>",
            f"<p>{escape(_figures(outcome))}</p>",
            f"<ul>{why}</ul>" if why else "",
            f"<h2>Which kill did it</h2><ul>{blamed}</ul>" if blamed else "",
            "<h2>Time line</h2>",
            _timeline(outcome),
            "<h2>Kills</h2>",
            _table(
                ("#", "at, s", "what", "to recover, s"),
                (
                    (f"{n}", f"{event.at_seconds:.1f}", _what(event), _seconds(event.recovered_s))
                    for n, event in enumerate(outcome.events, 1)
                ),
            ),
            "<h2>Rows</h2>",
            _table(
                ("", "rows", "for example"),
                (
                    (kind, f"{number:,}", _sample(outcome, kind))
                    for kind, number in outcome.report.differences.figures().items()
                    if kind in ("expected", "actual", *KINDS)
                ),
            ),
            f"<p class=dim>expected: {escape(outcome.report.expected_name)}<br>",
            f"actual: {escape(outcome.report.actual_name)}</p></html>\n",
        ]
    )


def _figures(outcome: Outcome) -> str:
    parts = [f"{len(outcome.kills)} x SIGKILL"]
    if outcome.asked_blows:
        parts.append(f"{len(outcome.blows)} times a server went away")
    if (p50 := outcome.recovery(0.5)) is not None:
        parts.append(f"{p50:.1f} s to recover (p50), {_seconds(outcome.recovery(0.99))} s (p99)")
    return f"{', '.join(parts)}, {outcome.job_seconds:.0f} s, seed {outcome.seed}."


def _what(event: Killed) -> str:
    done = event.server or f"SIGKILL, {event.processes} processes"
    return f"{done}: {event.story}"


def _seconds(number: float | None) -> str:
    return "" if number is None else f"{number:.1f}"


def _sample(outcome: Outcome, kind: str) -> str:
    samples = outcome.report.differences.samples.get(kind, ())
    for one in samples[:1]:
        identity = ", ".join(f"{name}={value}" for name, value in one.identity.items())
        places = (*one.found_in, *one.expected_in)
        return f"{identity}, in {places[0]}" if places else identity
    return ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells that are figures stand to the right."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' if _is_figure(cell) else ''}>{escape(cell)}</{tag}>" for cell in row
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><tr>{cells('th', head)}</tr>{body}</table>"


def _is_figure(cell: str) -> bool:
    return cell.replace(",", "").replace(".", "").isdecimal()


def _timeline(outcome: Outcome) -> str:
    """Visible rows, kills, servers and epochs over the seconds of the job."""
    end = max(outcome.job_seconds, 0.1)
    due = outcome.report.differences.expected
    highest = max([due, outcome.report.differences.actual, 1, *(n for _, n in outcome.visible)])

    def x(seconds: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * min(seconds, end) / end

    def y(rows: float) -> float:
        return _ROWS_BOTTOM - (_ROWS_BOTTOM - _ROWS_TOP) * rows / highest

    def mark(kind: str, seconds: float, top: int, bottom: int, said: str) -> str:
        at = f"{x(seconds):.1f}"
        return (
            f'<line class="{kind}" x1="{at}" x2="{at}" y1="{top}" y2="{bottom}">'
            f"<title>{escape(said)}</title></line>"
        )

    size = f'width="{_WIDTH}" height="{_BOTTOM + 26}" viewBox="0 0 {_WIDTH} {_BOTTOM + 26}"'
    drawn = [f'<svg {size} role="img" aria-label="time line">']
    for tick in _ticks(end):
        drawn.append(mark("axis", tick, _BOTTOM, _BOTTOM + 4, f"{tick:g} s"))
        drawn.append(
            f'<text x="{x(tick):.1f}" y="{_BOTTOM + 18}" text-anchor="middle">{tick:g} s</text>'
        )
    drawn += [f'<text x="0" y="{top + 4}">{name}</text>' for name, top in _LANES.items()]
    drawn.append(f'<text x="0" y="{_ROWS_TOP - 12}">visible rows</text>')
    drawn.append(
        f'<line class="due" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(due):.1f}" y2="{y(due):.1f}" />'
        f'<text x="0" y="{y(due) + 4:.1f}">{due:,}</text>'
    )
    steps = [*outcome.visible, (end, outcome.report.differences.actual)]
    path = f"M{_LEFT},{y(0):.1f}" + "".join(f"H{x(s):.1f}V{y(n):.1f}" for s, n in steps)
    drawn.append(f'<path class="rows" d="{path}" />')
    for seconds, epoch in outcome.epochs:
        top = _LANES["epochs"]
        drawn.append(mark("epoch", seconds, top - 7, top + 7, f"epoch {epoch}, {seconds:.1f} s"))
    for number, event in enumerate(outcome.events, 1):
        said = f"#{number}, {event.at_seconds:.1f} s: {_what(event)}"
        if event.server is None:
            drawn.append(mark("kill", event.at_seconds, _ROWS_TOP, _LANES["kills"] + 7, said))
        else:
            begin, over = x(event.at_seconds), x(event.at_seconds + event.away_s)
            drawn.append(
                f'<rect class="away" x="{begin:.1f}" y="{_LANES["servers"] - 7}" height="14" '
                f'width="{max(over - begin, 2):.1f}"><title>{escape(said)}</title></rect>'
            )
    return "".join([*drawn, "</svg>"])


def _ticks(end: float) -> Iterable[float]:
    """Some ten round numbers of seconds up to the end."""
    step = next(s for s in (0.1, 0.5, 1, 5, 10, 30, 60, 300, 600, 3600, end) if end / s <= 12)
    return (number * step for number in range(int(end / step) + 1))
