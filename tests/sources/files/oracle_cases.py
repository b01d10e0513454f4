# ruff: noqa: E501
"""Generates the files that Spark is asked about: by seed, the same for one seed at any time."""

from __future__ import annotations

import base64
import datetime as dt
import itertools
import json
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.sources.files.oracle import Group, group, parquet
from tests.sources.files.published import corpora

MOMENT = pa.timestamp("us", "UTC")
CLOCK = pa.timestamp("us")
BYTE, SHORT, INT, LONG = pa.int8(), pa.int16(), pa.int32(), pa.int64()
FLOAT, DOUBLE, MONEY = pa.float32(), pa.float64(), pa.decimal128(10, 2)
TEXT, BINARY, DATE, BOOL = pa.string(), pa.binary(), pa.date32(), pa.bool_()
TYPES = [BYTE, SHORT, INT, LONG, FLOAT, DOUBLE, MONEY, TEXT, BINARY, DATE, BOOL, MOMENT, CLOCK]

WORDS = """0 5 -5 +5 007 -0 -007 127 128 -129 32768 2147483648 9223372036854775808 0x10 0X1F 1_0 1e2 1E-2
5. .5 . - 1.5 -1.50 1.555 1.005 0.1 1e40 1e400 -1e400 1e-50 1e-400 3.4028235677973366e38 16777217 9007199254740993
1.17549435e-45 1d 1f 0x1p3 NaN nan Inf inf -Inf -inf +Inf INF Infinity -Infinity infinity true TRUE True tRue t 1 yes
false on null NULL None NA 123456789.12 12345678.12 99999999999999999999 1,5
2026-01-02 2026-1-2 2026 2026-02-30 0001-01-01 0000-01-01 1500-02-29 1582-10-10 9999-12-31 10000-01-01 -0001-01-01
2026-01-02T03:04:05 2026-01-02T03:04:05Z 2026-01-02T03:04:05.1 2026-01-02T03:04:05.123456Z 2026-01-02T03:04:05.123456789
2026-01-02T03:04:05+01:00 2026-01-02T03:04:05+0100 2026-01-02T03:04:05+01 2026-01-02T03:04:05-17:59 2026-01-02T03:04Z
2026-01-02T03:04:05+19:00 2026-01-02T24:00:00Z 2026-01-02T23:59:60Z 2026-03-08T02:30:00 2026-11-01T01:30:00
1883-11-18T12:00:00Z 1700-01-01T00:00:00Z 0001-01-01T00:00:00Z 9999-12-31T23:59:59.999999Z 2026-01-02T03 YWJj YQ== YW a b"""
SPACED = [" 5", "5 ", "\t5", " true", " 2026-01-02", "2026-01-02 03:04:05", "2026-01-02 03:04:05Z",
          "2026-01-02 03:04:05 Z", " 1.5", "1.5 ", " NaN", "a b", "", " ", "é", "😀", "\u0660", "a\x00b",
          "2026-01-02 03:04:05.5+05:30", "2026-01-02T03:04:05 UTC", "2026-01-02T03:04:05 Europe/Berlin"]  # fmt: skip
VALUES = [*WORDS.split(), *SPACED]


def every(seed: int) -> list[Group]:
    """All groups; a seed other than 0 makes other random texts."""
    rng = random.Random(seed)
    groups = [*csv_types(), *csv_headers(), *csv_dialects(rng), *json_types(rng), *json_lines(rng), *texts(rng),
              *parquet_pairs(), *parquet_nested(rng), *parquet_own(), *corpora()]  # fmt: skip
    return merged(groups)


def merged(groups: list[Group]) -> list[Group]:
    found: dict[str, Group] = {}
    for one in groups:
        before = found.get(one.label)
        files = {**(before.files if before else {}), **one.files}
        found[one.label] = Group(one.form, one.schema, files, one.options, one.spark)
    return list(found.values())


RFC = {"escape": '"'}
"""What our default is in Spark's options."""


def csv_types() -> Iterator[Group]:
    for kind in TYPES:
        schema = pa.schema([("i", INT), ("v", kind)])
        yield group(
            "csv", schema, [f"1,{value}\n" for value in VALUES if "," not in value], {}, RFC
        )
        quoted = [
            f'1,"{value}"\n'
            for value in ("5", "", "1.5", "true", "2026-01-02", " 5", "1,000", "NA")
        ]
        yield group("csv", schema, quoted, {}, RFC)
        yield group(
            "csv",
            schema,
            ["1,NA\n", '1,"NA"\n', "1,\n", '1,""\n', "1,5\n"],
            {"nullValue": "NA"},
            RFC,
        )


def csv_headers() -> Iterator[Group]:
    schema = pa.schema([("id", LONG), ("t", TEXT)])
    heads = ["id,t", '"id","t"', "ID,T", "\ufeffid,t", "\nid,t", "\n\nid,t", "\r\nid,t", "\ufeff\nid,t", "  \nid,t",
             " \t \nid,t", '"i""d",t', '"id\n",t', "id,t\r", 'id,"t', '"id"x,t', "id", "id,t,u", "x,y", ""]  # fmt: skip
    bodies = [
        "",
        "\n1,a\n2,b\n",
        "\r\n1,a\r\n2,b\r\n",
        "\n\n1,a\n\n2,b",
        "\r1,a\r2,b\r",
        "\n1,a\n \n2,b\n",
    ]
    yield group("csv", schema, [h + b for h in heads for b in bodies], {"header": "true"}, RFC)
    alone = pa.schema([("id", TEXT)])
    yield group("csv", alone, [f"id\n{b}" for b in ("a\n\nb\n", "a\n  \nb\n", '""\n', "\n", "a", "\ta\t\n")],
                {"header": "true"}, RFC)  # fmt: skip


def csv_dialects(rng: random.Random) -> Iterator[Group]:
    schema = pa.schema([("i", INT), ("t", TEXT), ("u", TEXT)])
    for quote, escape, sep, null in itertools.product(
        ('"', "'", ""), ("", '"', "\\", "^"), (",", ";", "\t", "|"), ("", "NA")
    ):
        if rng.random() > 0.35 and (quote, sep, null) != ('"', ",", ""):
            continue
        signs = [
            "a",
            "b ",
            '"',
            '""',
            "\\",
            "\\\\",
            '\\"',
            "'",
            "^",
            sep,
            "€",
            "\r",
            "#",
            "NA",
            " ",
        ]

        def value(quote: str = quote, escape: str = escape, signs: list[str] = signs) -> str:
            text = "".join(rng.choices(signs, k=rng.randint(0, 4)))
            if quote and rng.random() < 0.5:
                by = escape or quote
                if rng.random() < 0.7:
                    text = (
                        text.replace(by, 2 * by).replace(quote, by + quote)
                        if by != quote
                        else text.replace(quote, 2 * quote)
                    )
                return quote + text + quote
            return text.replace("\r", "")

        def file(sep: str = sep, value: Callable[[], str] = value) -> str:
            rows = [sep.join((str(n), value(), value())) for n in range(rng.randint(1, 3))]
            return "".join(row + rng.choice(("\n", "\n", "\r\n")) for row in rows)

        options = {"quote": quote, "escape": escape, "sep": sep, "nullValue": null}
        spark = {} if escape else {"escape": quote or '"'}
        yield group(
            "csv", schema, {t: t.encode() for t in (file() for _ in range(14))}, options, spark
        )


def json_types(rng: random.Random) -> Iterator[Group]:
    bare = [v for v in VALUES if v and not set(v) & set(" \t,") and v.isascii() and v.isprintable()]
    for kind in TYPES:
        schema = pa.schema([("v", kind)])
        lines = [f'{{"v":{json.dumps(v)}}}\n' for v in VALUES]
        lines += [
            f'{{"v":{v}}}\n'
            for v in bare
            if not v[0].isalpha() or v.islower() or v in ("NaN", "Infinity")
        ]
        lines += [f'{{"v":{v}}}\n' for v in ("[1]", '{"a": 1}', "[]", "{}", "null")]
        yield group("json", schema, lines)
        some = rng.sample(VALUES, 6)
        for wrapped, form in ((pa.list_(kind), '{"v":[%s, null]}\n'), (pa.struct([("x", kind)]), '{"v":{"x":%s}}\n'),
                              (pa.map_(TEXT, kind), '{"v":{"k":%s}}\n')):  # fmt: skip
            values = ["5", "1.5", '"NaN"', '"a"', "true", '"2026-01-02"', '"2026-01-02T03:04:05Z"', '"YWJj"',
                      '"2026-01-02T03:04:05"', *map(json.dumps, some)]  # fmt: skip
            yield group("json", pa.schema([("v", wrapped)]), [form % value for value in values])


ODD_JSON = r"""{"a":1} {"a":2}|{"a":1}{"a":2}|[{"a":1},{"a":2}]|[]|null|{}|{"a":1}x|{"a":1},|{"a":1,}|{'a':1}|{a:1}|{"a":01}
{"a":1}//x|/**/{"a":1}|{"a":1 /*x*/}|{"b":NaN,"a":1}|{"b":Inf,"a":1}|{"b":-Infinity,"a":1}|{"b":"\x","a":1}|{"b":tru}|{"A":1}
{"a":1,"a":2}|{"b":1,"b":2,"a":3}|{"b":{"c":1,"c":2},"a":3}|{"a":1}\u0000|{"a":{"b":1}}|{"a":"1"}|"a"|1|true|{"a":1}{|{"a":1}}
{"a":1|{"a"|{"a":|{|}|{"a":1}]|{"a" : 1 }| {"a":1}|{"a":1} |{"":1,"a":2}|{"\u0061":1}|{"a":1,"b":"\ud83d"}|{"b":"}\n{","a":1}""".replace(
    "\n", "|"
).split("|")


def json_lines(rng: random.Random) -> Iterator[Group]:
    schema = pa.schema([("a", INT), ("b", TEXT)])
    odd = [line.replace("\\u0000", "\x00") for line in ODD_JSON]
    files = [f"{line}\n" for line in odd] + [f'{{"a":0}}\n{line}\n{{"a":9}}\n' for line in odd]
    files += [
        '{"a":1}\r{"a":2}\r',
        '{"a":1}\r\n{"a":2}',
        '\n\n{"a":1}\n \t\n{"a":2}',
        '{"a":\n1}\n',
        '{"a":1\n}\n',
        '\ufeff{"a":1}\n',
        "",
        "\n",
        " ",
    ]
    yield group("json", schema, files)
    deep = pa.struct(
        [("f", DOUBLE), ("l", pa.list_(DOUBLE)), ("m", pa.map_(TEXT, LONG)), ("t", MOMENT)]
    )
    wide = pa.schema(
        [("s", deep), ("a", pa.list_(deep)), ("raw", BINARY), ("d", DATE), ("n", DOUBLE)]
    )
    for _ in range(1):
        yield group(
            "json",
            wide,
            ["\n".join(_object(rng) for _ in range(rng.randint(1, 3))) + "\n" for _ in range(120)],
        )


def _object(rng: random.Random) -> str:
    def number() -> Any:
        return rng.choice(
            [
                0,
                1,
                -1,
                0.1,
                1e22,
                123456789012345678,
                "NaN",
                "Infinity",
                "-Infinity",
                "-INF",
                None,
                2.5e-8,
            ]
        )

    def deep() -> Any:
        found = {"f": number(), "l": [number() for _ in range(rng.randint(0, 2))],
                 "m": {rng.choice("xyz"): rng.randint(-9, 9) for _ in range(rng.randint(0, 2))},
                 "t": rng.choice(["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.5+02:00", None]), "more": [1]}  # fmt: skip
        return rng.choice([None, {k: v for k, v in found.items() if rng.random() < 0.8}, found])

    fields = {"s": deep(), "a": [deep() for _ in range(rng.randint(0, 2))], "n": number(), "d": rng.choice(["2026-01-02", None]),
              "raw": base64.b64encode(rng.randbytes(rng.randint(0, 5))).decode(), "x": {"y": [None, True, "z"]}}  # fmt: skip
    return json.dumps(
        {k: v for k, v in fields.items() if rng.random() < 0.85}, ensure_ascii=rng.random() < 0.5
    )


def texts(rng: random.Random) -> Iterator[Group]:
    signs = ["a", "€", "\n", "\r", "\r\n", " ", "\t", "\n\n", "\x00", "\x0b", "\u2028", "\x85"]
    files = {"".join(rng.choices(signs, k=rng.randint(0, 8))) for _ in range(90)} | {
        "a\r",
        "\r",
        "\n",
        "",
        "\ufeffa\n",
    }
    yield group("text", pa.schema([("value", TEXT)]), sorted(files))


def _day(text: str) -> dt.date:
    return dt.date.fromisoformat(text)


COLUMNS: dict[str, pa.Array] = {
    "byte": pa.array([1, None, -128], BYTE),
    "short": pa.array([1, None, -32768], SHORT),
    "int": pa.array([1, None, -(2**31)], INT),
    "small int": pa.array([1, None, 100], INT),
    "long": pa.array([1, None, 2**62], LONG),
    "small long": pa.array([1, None, 100], LONG),
    "millis": pa.array([1_767_355_200_000, None], LONG),
    "ubyte": pa.array([1, None, 255], pa.uint8()),
    "ushort": pa.array([1, None, 65535], pa.uint16()),
    "uint": pa.array([1, None, 2**32 - 1], pa.uint32()),
    "ulong": pa.array([1, None, 2**64 - 1], pa.uint64()),
    "half": pa.array([1.5, None], pa.float16()),
    "float": pa.array([0.1, None, float("inf"), float("nan"), -0.0], FLOAT),
    "double": pa.array([0.1, None, 1e300, float("nan"), -0.0], DOUBLE),
    "decimal(9,2)": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)),
    "decimal(18,2)": pa.array([Decimal("1.55"), None], pa.decimal128(18, 2)),
    "decimal(10,0)": pa.array([Decimal(5), None], pa.decimal128(10, 0)),
    "decimal(38,10)": pa.array([Decimal("1.5"), None], pa.decimal128(38, 10)),
    "string": pa.array(["a", None, "", "5"]),
    "large string": pa.array(["a", None, ""], pa.large_string()),
    "dictionary": pa.array(["a", None, "a"]).dictionary_encode(),
    "binary": pa.array([b"a", None, b""]),
    "odd binary": pa.array([b"\xff\x00", None]),
    "fixed": pa.array([b"abc", None], pa.binary(3)),
    "date": pa.array([_day("2026-01-02"), None, _day("1500-03-01"), _day("0001-01-01")]),
    "date64": pa.array([_day("2026-01-02"), None], pa.date64()),
    "moment": pa.array([1_767_355_200_000_001, None, -(10**14)], MOMENT),
    "clock": pa.array([1_767_355_200_000_001, None, -(10**14)], CLOCK),
    "midnight": pa.array([1_767_312_000_000_000, None], CLOCK),
    "moment ms": pa.array([1_767_355_200_001, None], pa.timestamp("ms", "UTC")),
    "clock ns": pa.array([1_767_355_200_000_001_000, None], pa.timestamp("ns")),
    "clock odd ns": pa.array([1_767_355_200_000_001_001, None], pa.timestamp("ns")),
    "moment ny": pa.array([1_767_355_200_000_000, None], pa.timestamp("us", "America/New_York")),
    "bool": pa.array([True, None, False]),
    "null": pa.nulls(2),
}
WANTED = [
    *TYPES,
    pa.decimal128(20, 0),
    pa.decimal128(38, 2),
    pa.decimal128(5, 2),
    pa.decimal128(20, 10),
]
HOW: dict[str, dict[str, Any]] = {
    "": {},
    "v1, gzip": {"version": "1.0", "compression": "gzip", "data_page_version": "1.0"},
    "plain, zstd": {"use_dictionary": False, "compression": "zstd", "data_page_version": "2.0"},
    "int96": {"use_deprecated_int96_timestamps": True},
}


def parquet_pairs() -> Iterator[Group]:
    for (name, array), wanted in itertools.product(COLUMNS.items(), WANTED):
        how = list(HOW)[(len(name) + WANTED.index(wanted)) % 3] if " ns" not in name else ""
        file = parquet(pa.table({"V": array}), **HOW[how])
        yield group("parquet", pa.schema([("v", wanted)]), {f"{name}, {how}": file})


def parquet_nested(rng: random.Random) -> Iterator[Group]:
    pairs = rng.sample(list(itertools.product(COLUMNS, WANTED)), 100)
    for name, wanted in pairs:
        array = COLUMNS[name]
        for wrap, (make, kind) in WRAPS.items():
            if rng.random() < 0.4:
                table = pa.table({"V": make(array)})
                yield group(
                    "parquet",
                    pa.schema([("v", kind(wanted))]),
                    {f"{wrap} of {name}": parquet(table)},
                )
    struct = pa.array([{"userId": 3, "more": "x"}, None, {"userId": None, "more": None}])
    for wrap, (make, kind) in WRAPS.items():
        for fields in (
            ["userid"],
            ["USERID", "MORE"],
            ["more", "userId"],
            ["later", "more"],
            ["later"],
            [],
        ):
            if fields:
                inner = pa.struct([(f, LONG if f.lower() == "userid" else TEXT) for f in fields])
                yield group(
                    "parquet",
                    pa.schema([("v", kind(inner))]),
                    {f"{wrap} of structs": parquet(pa.table({"v": make(struct)}))},
                )
    twins = pa.array([{"a": 1, "A": 2}])
    for name in ("a", "A"):
        yield group(
            "parquet",
            pa.schema([("v", pa.struct([(name, LONG)]))]),
            {"case twins": parquet(pa.table({"v": twins}))},
        )


def _ends(array: pa.Array) -> pa.Array:
    return pa.array(range(len(array) + 1), INT)


def _in_struct(array: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([array], names=["X"])


def _in_list(array: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(_ends(array), array)


def _in_map(array: pa.Array) -> pa.Array:
    return pa.MapArray.from_arrays(
        _ends(array), pa.array([str(n) for n in range(len(array))]), array
    )


_Wrap = tuple[Callable[[pa.Array], pa.Array], Callable[[pa.DataType], pa.DataType]]
WRAPS: dict[str, _Wrap] = {
    "struct": (_in_struct, lambda kind: pa.struct([("x", kind)])),
    "list": (_in_list, pa.list_),
    "map": (_in_map, lambda kind: pa.map_(TEXT, kind)),
    "list of structs": (
        lambda a: _in_list(_in_struct(a)),
        lambda kind: pa.list_(pa.struct([("x", kind)])),
    ),
}


def parquet_own() -> Iterator[Group]:
    for name, array in COLUMNS.items():
        for how in ("", "int96"):
            file = parquet(pa.table({"v": array}), **HOW[how])
            yield group("parquet", None, {f"{name}, {how}": file})
        for wrap in list(WRAPS)[len(name) % 2 :: 2]:
            table = pa.table({"v": WRAPS[wrap][0](array)})
            how = "int96" if "m" in name else ""
            yield group("parquet", None, {f"{wrap} of {name}, {how}": parquet(table, **HOW[how])})
