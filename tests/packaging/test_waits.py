"""Tests wait for what they need and no longer: no fixed pauses, no slow looks, no client's own wait."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("tests", "kit/abs_testing", "tools/abs_chaos", "tools/abs_services")

MAX_PAUSE_S = 0.2
"""Between two looks, and of a pause that is a part of what is tested."""

READERS = {"Consumer": "fetch.wait.max.ms", "KafkaConsumer": "fetch_max_wait_ms"}
"""A client, and the setting without which a broker keeps it waiting at an end for half a second."""

ALLOWED = {
    (
        "tools/abs_chaos/killing.py",
        "sleep",
    ): "a user's job is started again, a server is away",
    (
        "tests/chaos/jobs/plain.py",
        "sleep",
    ): "a job with a defect, which is to be killed in this pause",
    ("tests/kit/kafka_late_markers.py", "serve_forever"): "asyncio's own, which looks at no clock",
    ("tests/porcupine/workers.py", "serve_forever"): "a process of its own, which is killed",
    ("tests/spark/jobs/tend_lake.py", "sleep"): "each turn is a job of Spark's",
    ("tests/spark/test_spark_kafka_cluster.py", "every"): "a look connects to three brokers anew",
}
"""Longer waits, with the reason for each."""


def waits(text: str) -> Iterator[tuple[str, int]]:
    """The kind of what waits too long, or may, and its line."""
    tree = ast.parse(text)
    named = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }

    def seconds(node: ast.expr | None) -> float:
        value = named.get(node.id, node) if isinstance(node, ast.Name) else node
        found = value.value if isinstance(value, ast.Constant) else None
        return 0.0 if isinstance(found, bool) or not isinstance(found, int | float) else found

    for node in ast.walk(tree):
        if isinstance(node, ast.arguments):
            given = [*zip(reversed(node.args), reversed(node.defaults), strict=False)]
            given += [(a, d) for a, d in zip(node.kwonlyargs, node.kw_defaults, strict=True) if d]
            named_so = {arg.arg: (default, arg.lineno) for arg, default in given}
        elif isinstance(node, ast.Call):
            first = seconds(node.args[0] if node.args else None)
            kind = getattr(node.func, "attr", getattr(node.func, "id", ""))
            named_so = {word.arg or "": (word.value, node.lineno) for word in node.keywords}
            if _is_long(kind, first, ast.unparse(node)):
                yield kind, node.lineno
        else:
            continue
        if "every" in named_so and seconds(named_so["every"][0]) > MAX_PAUSE_S:
            yield "every", named_so["every"][1]


def _is_long(kind: str, first: float, call: str) -> bool:
    if kind == "wait":  # a second and more is for how long an event may take: it ends before
        return MAX_PAUSE_S < first < 1
    if kind in READERS:
        return READERS[kind] not in call
    if kind in ("Thread", "serve_forever"):
        return bool(re.search(r"serve_forever(\(\)|\)$|, daemon=True\)$)", call))
    return kind == "sleep" and first > MAX_PAUSE_S


def files() -> dict[str, str]:
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    return {str(path.relative_to(ROOT)): path.read_text() for path in found}


def long_waits(texts: Mapping[str, str]) -> dict[tuple[str, str], int]:
    """The file and the kind of each wait, and its line."""
    return {(path, kind): line for path, text in texts.items() for kind, line in waits(text)}


def test_no_test_waits_longer_than_it_must() -> None:
    found = long_waits(files())
    too_long = [f"{path}:{found[path, kind]}: {kind}" for path, kind in found.keys() - ALLOWED]
    assert not too_long
    assert not ALLOWED.keys() - found.keys(), "reasons for waits that have gone"


@pytest.mark.parametrize(
    "planted",
    [
        "time.sleep(0.5)",
        "PAUSE = 2\ntime.sleep(PAUSE)",
        "ready.wait(0.3)",
        "until(done, every=0.5)",
        "def until(done, *, every: float = 1.0): ...",
        "Thread(target=server.serve_forever).start()",
        "server.serve_forever()",
        'Consumer({"enable.partition.eof": True})',
        "kafka.KafkaConsumer(group_id=None)",
    ],
)
def test_a_wait_is_found(planted: str) -> None:
    assert len(list(waits(planted))) == 1


@pytest.mark.parametrize(
    "planted",
    ["time.sleep(0.01)", "assert ready.wait(60)", "ready.wait(60)", "until(done, every=0.01)"],
)
def test_a_short_look_and_a_deadline_are_none(planted: str) -> None:
    assert not list(waits(planted))
