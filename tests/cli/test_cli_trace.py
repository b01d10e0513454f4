"""`abs trace` draws what a job's trace holds."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

from abs_core.barriers.elements import TaskId
from abs_core.errors import ConfigError, DataError
from abs_embedded.trace import Trace, read, timeline
from tests.kit.command import abs_


def traced(folder: Path) -> Path:
    trace, source, sink = Trace(), TaskId("source", 0), TaskId("out", 0)
    trace("begin", None, 3)
    trace("trigger", source, 3)
    trace("copy", source, 3)
    trace("barrier", sink, 3)
    trace("copy", sink, 3)
    trace("persisted", source, 3)
    trace("persisted", sink, 3)
    trace("committed", None, 3)
    shown = timeline(trace.moments, 3)
    assert [span.task for span in shown.spans] == ["source/0", "out/0"]
    assert [what for what, _ in shown.marks] == ["begin", "committed"]
    path = folder / "trace.jsonl"
    trace.write(str(path))
    assert read(str(path)) == trace.moments
    return path


def test_a_checkpoint_is_drawn(tmp_path: Path) -> None:
    out = tmp_path / "trace.svg"
    done = abs_("trace", str(traced(tmp_path)), "--out", str(out))
    assert done.exit_code == 0, done.output
    shapes = [shape.tag.partition("}")[2] for shape in ET.parse(out).getroot()]
    assert shapes.count("rect") == 1 + 4  # the ground, and two bars for each task
    assert "source/0" in out.read_text()


def test_a_checkpoint_that_is_not_in_the_trace_is_an_error(tmp_path: Path) -> None:
    done = abs_("trace", str(traced(tmp_path)), "--checkpoint", "9")
    assert isinstance(done.exception, DataError)


def test_a_picture_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    path = str(traced(tmp_path))
    for out in ("trace.xyz", "nowhere/trace.svg"):
        done = abs_("trace", path, "--out", str(tmp_path / out))
        assert isinstance(done.exception, ConfigError), out
