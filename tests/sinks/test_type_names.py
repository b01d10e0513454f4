"""Types are shown by Spark's names: an error says `bigint`, not `int64`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from abs_audit.ddl import from_ddl
from abs_clients.arrow import type_name

ROOT = Path(__file__).parents[2]
FOLDERS = ("clients", "sinks", "sources")
_OWN = {"entries.py": "Iceberg's own types"}
_PARTS = {"type", "value_type", "key_type", "item_type"}

DDL = (
    "boolean tinyint smallint int bigint float double string binary date timestamp timestamp_ntz "
    "decimal(12,2) array<int> array<array<timestamp>> map<string,bigint> struct<a:int,b:array<date>>"
)


@pytest.mark.parametrize("name", DDL.split())
def test_a_type_has_the_name_by_which_spark_reads_it(name: str) -> None:
    (kind,) = (field.type for field in from_ddl(f"c {name}"))
    shown = type_name(kind)
    assert shown.replace(" ", "") == name
    assert from_ddl(f"c {shown}").field("c").type == kind


@pytest.mark.parametrize(
    "kind", [pa.uint8(), pa.float16(), pa.timestamp("ns"), pa.duration("ns"), pa.decimal256(50, 1)]
)
def test_a_type_that_spark_does_not_have_keeps_arrows_name(kind: pa.DataType) -> None:
    assert type_name(kind) == str(kind)


def bare_types(code: str) -> Iterator[str]:
    """Types of columns that a text shows as Arrow writes them."""
    for made in ast.walk(ast.parse(code)):
        if isinstance(made, ast.FunctionDef):
            every = [*made.args.posonlyargs, *made.args.args, *made.args.kwonlyargs]
            kinds = {each.arg for each in every if _is_type(each)}
            kinds |= {name for line in ast.walk(made) for name in _plain(line)}
            yield from (text for text in _shown(made) if text in kinds)
    yield from (text for text in _shown(ast.parse(code)) if text.rpartition(".")[2] in _PARTS)


def _is_type(argument: ast.arg) -> bool:
    return argument.annotation is not None and "pa.DataType" in ast.unparse(argument.annotation)


def _plain(line: ast.AST) -> Iterator[str]:
    if isinstance(line, ast.Assign) and "plain_type(" in ast.unparse(line.value):
        yield from (target.id for target in line.targets if isinstance(target, ast.Name))


def _shown(tree: ast.AST) -> Iterator[str]:
    for part in ast.walk(tree):
        if isinstance(part, ast.FormattedValue) and isinstance(
            part.value, ast.Name | ast.Attribute
        ):
            yield ast.unparse(part.value)


def test_no_text_shows_a_type_by_arrows_name() -> None:
    pages = [page for folder in FOLDERS for page in (ROOT / folder).rglob("*.py")]
    assert len(pages) > 100
    bare = {
        page.name: list(bare_types(page.read_text())) for page in pages if page.name not in _OWN
    }
    assert {name: texts for name, texts in bare.items() if texts} == {}


@pytest.mark.parametrize(
    "planted",
    [
        'def f(field):\n    raise E(f"{field.name} is {field.type}")',
        'def f(arrow: pa.DataType):\n    raise E(f"{arrow} does not fit")',
        'def f(field):\n    plain = plain_type(field)\n    raise E(f"{plain} does not fit")',
        'x = [f"{schema.field(0).type}"]',
    ],
)
def test_a_type_that_is_shown_as_arrow_has_it_is_found(planted: str) -> None:
    assert list(bare_types(planted))
