"""Shows the running demo: a live picture on a terminal, plain lines elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from abs_demo.moments import counted

LINE_EVERY_EPOCHS = 10


@dataclass(frozen=True, slots=True)
class View:
    """One picture of the demo.

    Args:
        title: job and seed.
        epochs: finished ones, and all.
        rows: visible in the table, and expected.
        in_doubt: number of ``thing``.
        state: of the job: starting, running, killed, ...
        elapsed: seconds since the first start.
        events: one line for each kill so far.
    """

    title: str
    epochs: tuple[int, int]
    rows: tuple[int, int]
    in_doubt: int
    thing: str
    state: str
    elapsed: float
    events: tuple[str, ...] = ()


class Display:
    """Shows the demo's progress: one panel on a terminal, whose last picture stays; else lines.

    A line for each event, and for every tenth epoch.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._events = 0
        self._epochs = 0
        self._title = ""

    def show(self, view: View) -> None:
        if self._live is not None:
            self._live.update(panel(view), refresh=True)
            return
        if view.title != self._title:
            self._title = view.title
            self._say(view.title)
        for event in view.events[self._events :]:
            self._say(f"{clock(view.elapsed)} {event}")
        self._events = len(view.events)
        done, of = view.epochs
        if done // LINE_EVERY_EPOCHS > self._epochs // LINE_EVERY_EPOCHS:
            self._say(f"{clock(view.elapsed)} {done} of {of} epochs, {view.rows[0]:,} rows")
        self._epochs = done

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()


def panel(view: View) -> RenderableType:
    """The picture, for a terminal of any width."""
    figures = Table.grid(padding=(0, 2))
    figures.add_column(style="dim", justify="right")
    figures.add_column()
    done, of = view.epochs
    bar = Table.grid(padding=(0, 1))
    bar.add_row(ProgressBar(total=of, completed=done, width=40), f"{done} of {of}")
    figures.add_row("epochs", bar)
    rows, expected = view.rows
    style = "red" if rows > expected else ""
    figures.add_row("rows", Text(f"{rows:,} of {expected:,}", style=style))
    style = "yellow" if view.in_doubt else "dim"
    figures.add_row("in doubt", Text(counted(view.in_doubt, view.thing), style=style))
    figures.add_row("job", Text(view.state, style="red" if view.state == "killed" else "green"))
    figures.add_row("elapsed", clock(view.elapsed))
    events = [Text(event, style="red") for event in view.events]
    return Panel(Group(figures, *events), title=Text(view.title), title_align="left")


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
