"""Pictures of the site and of ``abs watch``, for people to look at: build/screenshots has them.

What a test can see in a picture: that it is there, has the page's text, and nothing wider than the
window. The rest is looked at by whoever changes the pages.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from rich.console import Console

from abs_cli import watch
from abs_core.model import HandleName, InDoubt, JobState, Recent
from tests.kit.http import serving

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site"
TAKEN = ROOT / "build" / "screenshots"
PAGES = {
    "index": "xactly-once",
    "docs/tutorial/first-stream": "ten minutes",
    "docs/how-to/watching": "AbsNoEpochCommitted",
    "docs/reference/errors": "ABS-",
    "docs/explanation/compared": "Flink",
}
"""And a word that each shows."""
WIDE, NARROW = 1280, 480
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def chromium(*words: str) -> str:
    """Run it without a window; what it prints."""
    assert CHROMIUM is not None
    common = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    made = subprocess.run(
        [CHROMIUM, *common, *words], capture_output=True, text=True, check=False, timeout=120
    )
    assert made.returncode == 0, made.stderr[-2000:]
    return made.stdout


def wider_than_the_window(page: Path, folder: Path) -> list[str]:
    """What a reader of a narrow window would have to push to the left to read: tags of elements.

    Tables and code scroll in a box of their own, and do not count.
    """
    probe = folder / "probe.html"
    probe.write_text(_PROBE % (NARROW, page.as_uri()))
    told = chromium(
        "--allow-file-access-from-files", "--virtual-time-budget=5000", "--dump-dom", str(probe)
    )
    found = re.search(r'<pre id="told">(.*?)</pre>', told, re.DOTALL)
    assert found is not None, told[-500:]
    assert found[1] != "not loaded"
    return found[1].split()


_PROBE = """<!doctype html><iframe id="page" width="%d" height="800" src="%s"></iframe>
<pre id="told">not loaded</pre><script>
document.getElementById("page").onload = (event) => {
  const inside = event.target.contentDocument;
  const wide = inside.documentElement.clientWidth;
  const over = [];
  if (inside.documentElement.scrollWidth > wide + 1)
    for (const one of inside.querySelectorAll("article *"))
      if (one.getBoundingClientRect().right > wide + 1
          && !one.closest("table, pre, .md-typeset__scrollwrap"))
        over.push(one.tagName);
  document.getElementById("told").textContent = over.join(" ");
};</script>"""


@pytest.fixture(scope="module")
def site() -> Path:
    subprocess.run([sys.executable, "docs/make_site.py"], cwd=ROOT, check=True)
    TAKEN.mkdir(exist_ok=True)
    return SITE


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served, as its readers see it: a browser searches in no folder of files."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    server.daemon_threads = True
    with serving(server):
        yield f"http://127.0.0.1:{server.server_port}"


@pytest.mark.campaign
@pytest.mark.skipif(CHROMIUM is None, reason="Debian's package chromium is not installed")
@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_the_site_can_be_seen(
    name: str, site: Path, address: str, tmp_path: Path
) -> None:
    page = site / f"{name}.html"
    assert PAGES[name] in page.read_text()
    for width in (WIDE, NARROW):
        picture = TAKEN / f"{name.replace('/', '-')}-{width}.png"
        there = f"{address}/{name}.html"
        chromium(f"--window-size={width},1600", f"--screenshot={picture}", there)
        assert picture.stat().st_size > 10_000, "an empty page is smaller"
    assert wider_than_the_window(page, tmp_path) == []


@pytest.mark.campaign
@pytest.mark.skipif(CHROMIUM is None, reason="Debian's package chromium is not installed")
def test_a_page_that_is_too_wide_is_found(site: Path, tmp_path: Path) -> None:
    page = tmp_path / "wide.html"
    page.write_text("<article><p style='width: 900px'>x</p></article>")
    assert wider_than_the_window(page, tmp_path) == ["P"]


def state(job: str, frontier: int, **more: object) -> JobState:
    recent = (Recent(frontier, "x", 20_938),)
    return JobState(
        "0" * 16, job, "postgres:1/shop/public.t", "q", 3, "r", frontier=frontier, recent=recent
    )


def test_abs_watch_can_be_seen() -> None:
    now = 1000.0
    first = {
        job: watch.Seen(now - 60, state(job, 100), now - 60, ()) for job in ("payments", "orders")
    }
    handle = HandleName("0" * 16, "orders", 3, 101, 0, "ab")
    doubt = InDoubt(handle, 412.0, str(handle))
    later = {
        "payments": watch.Seen(now, state("payments", 219), now - 0.4, ()),
        "orders": watch.Seen(now, state("orders", 100), now - 412, (doubt,)),
    }
    console = Console(record=True, width=120, file=io.StringIO())
    console.print(watch._picture(watch.lines(first, later)))
    TAKEN.mkdir(parents=True, exist_ok=True)
    console.save_svg(str(TAKEN / "watch.svg"), title="abs watch", clear=False)
    shown = console.export_text()
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 120
    assert "running" in lines[1]
    assert "119" in lines[1]
    assert "in doubt" in lines[2]
    assert "what is prepared: start job orders" in " ".join(" ".join(lines[3:]).split())
