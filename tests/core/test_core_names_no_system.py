"""The core names no engine and no system in what it tells people: those add their own names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

CORE = Path(__file__).parents[2] / "abs_core"

NAMES = re.compile(
    r"abs_spark|abs_sinks\.|foreachBatch|stateschema|registertopic|statepath|kafka\.|psycopg|boto3|pyspark"
)


def _texts(source: str) -> list[str]:
    """Every text in the code that is no docstring."""
    tree = ast.parse(source)
    told = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told
    ]


def test_no_text_of_the_core_names_an_engine_or_a_system() -> None:
    files = list(CORE.rglob("*.py"))
    assert len(files) > 40
    found = {
        (path.name, name)
        for path in files
        for text in _texts(path.read_text())
        for name in NAMES.findall(text)
    }
    assert found == set()


def test_such_a_text_would_be_found() -> None:
    assert NAMES.findall(_texts('raise E("set kafka.acks")')[0]) == ["kafka."]
