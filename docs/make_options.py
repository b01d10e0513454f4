"""Writes ``docs/reference/options.md``: every option with its default, as the code has them.

    python docs/make_options.py

Names, defaults and texts come from the code; an option without a text is an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from abs_clients.kafka.setting_table import NO_EQUIVALENT, SETTINGS
from abs_clients.options import Option, options_of, share
from abs_clients.s3.server import Server
from abs_sinks.delta.sink import DeltaOptions
from abs_sinks.iceberg.sink import IcebergOptions
from abs_sinks.kafka import options as kafka_sink
from abs_sinks.options import COMMON
from abs_sinks.postgres import options as postgres_sink
from abs_sinks.s3 import options as s3_sink
from abs_sources.files import options as files_source
from abs_sources.kafka import options as kafka_source

PAGE = Path(__file__).parent / "reference" / "options.md"
UNSHOWN = {"queryName"}
"""Spark adds it; nobody gives it."""

HEAD = """# Options

`python docs/make_options.py` writes this page. Upper and lower case of option names do not matter. An unknown or contradictory
option is an error that suggests the nearest valid one, before anything is written; so is a value that an option does not take.
`abs_spark.sink` and `abs doctor` say so at once. Of a format (`writeStream.format`) Spark reads the options when the first rows come:
a query whose source has nothing new starts with a wrong one.
"""

Sections = tuple[tuple[str, str, Iterable[Option]], ...]
"""Title, a note, and the options."""

SECTIONS: Sections = (
    ("All sinks", "", COMMON),
    ("`abs-postgres`", "", postgres_sink.OPTIONS),
    (
        "`abs-kafka` as a sink",
        "`kafka.*` are settings of librdkafka, by their names there; see [Kafka](kafka.md#use) and [logins](../how-to/access.md).",
        kafka_sink.OPTIONS,
    ),
    (
        "`abs-s3`",
        "Credentials are never options: boto3 finds them in its usual places.",
        s3_sink.OPTIONS,
    ),
    (
        "`abs-delta`",
        "See [tables](tables.md). Credentials are never options: boto3 finds them in its usual places.",
        (*options_of(DeltaOptions), *options_of(Server)),
    ),
    (
        "`abs-iceberg`",
        "`catalog.*` are pyiceberg's own properties of a catalog, such as `catalog.type` and `catalog.uri`. See [tables](tables.md).",
        (*options_of(IcebergOptions), *options_of(Server)),
    ),
    (
        "`abs-kafka` as a source",
        "`kafka.*` are settings of librdkafka, by their names there. Settings that would let Kafka manage the offsets, and names of the Java client, are refused; the error says what to do instead. See [Kafka as a source](kafka-source.md).",
        kafka_source.OPTIONS,
    ),
    (
        "`abs-files`",
        "boto3 finds the credentials for S3 in its usual places. See [files as a source](files-source.md).",
        files_source.OPTIONS,
    ),
)


def written(sections: Sections = SECTIONS) -> str:
    """The page.

    Raises:
        ValueError: an option has no text.
    """
    parts = [HEAD]
    for title, note, options in sections:
        shown = [option for option in options if option.name not in UNSHOWN]
        if silent := [option.name for option in shown if not option.doc]:
            raise ValueError(f"{title}: give a text to {', '.join(silent)}")
        rows = "".join(f"| `{o.name}` | {_default(o)} | {o.doc} |\n" for o in shown)
        parts += [
            f"## {title}\n",
            f"{note}\n" if note else "",
            f"| option | default | |\n| --- | --- | --- |\n{rows}",
        ]
    return "\n".join(part for part in [*parts, clients_settings()] if part)


def clients_settings() -> str:
    """The table of ``kafka.*`` settings that are known by name."""
    rows = "".join(
        f"| `kafka.{each.name}` | {'yes' if each.everywhere else ''} | {'hidden' if each.secret else ''} "
        f"| {', '.join(f'`{java}`' for java in each.javas)} |\n"
        for each in SETTINGS
    )
    refused = "".join(f"| `{java}` | {what} |\n" for java, what in NO_EQUIVALENT.items())
    return f"""## `kafka.*` settings

A setting that is not listed is librdkafka's alone, and its value is hidden unless it is a number. Column by column: the
columnar producer heeds it, too. Hidden: errors, logs and `repr` do not show its value.

| setting | column by column | | Java's name |
| --- | --- | --- | --- |
{rows}
Of the Java client only, and refused:

| Java's name | instead |
| --- | --- |
{refused}"""


def _default(option: Option) -> str:
    value = option.default
    if value is None or value in ("", (), frozenset()):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if option.read is share:
        return f"`{value:g}`"
    if isinstance(value, float):
        return f"{value:g} s"
    if isinstance(value, int) and value >= 1 << 20 and value % (1 << 20) == 0:
        return f"`{value >> 20}m`"
    return f"`{value}`"


if __name__ == "__main__":
    PAGE.write_text(written())
