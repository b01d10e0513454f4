"""Writes ``docs/reference/options.md``: every option with its default, as the code has them.

    python docs/make_options.py

Names and defaults come from the code. What an option is for stands here; an option that has no line
here, and a line that has no option, are errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from abs_clients.options import Option
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

This page is written by `python docs/make_options.py`. Names are matched without regard to case. An unknown or contradictory
option is an error that names the nearest valid one, before anything is written.
"""

BUCKET = {
    "endpoint": "`http://host:port` of another server than Amazon's (boto3's `AWS_ENDPOINT_URL` works too)",
    "region": "boto3's by default",
    "pathstyle": "`true` or `false`; true by default where there is an `endpoint`",
    "timeout": "how long one request may take",
}

Sections = tuple[tuple[str, str, Iterable[Option], Mapping[str, str]], ...]
"""Title, a note, the options, and what each is for."""

SECTIONS: Sections = (
    (
        "All sinks",
        "",
        COMMON,
        {
            "protocol": "`2pc`, `wal` or `idempotent`",
            "job": "a stable name of the job; the query's id by default. Only a job with a name of its own notices a "
            "deleted checkpoint",
            "epoch": "batch writes: names this batch; written again under the same name, it changes nothing",
            "adopt": "a token that an error message names: consent to take over a register",
            "wal": "Kafka under `protocol=wal`: `file:///folder` (from the root on), seen by all machines, or "
            "`s3://bucket/prefix` (`?endpoint=http://host:port&region=...`). A stream's default is "
            "`<checkpointLocation>/abs/wal`",
            "checkpointLocation": "Spark's; set it here too if it is set in the session's configuration",
            "patience": "for how long a server that does not answer is waited for: a number of seconds, or `3m`; "
            "see [operations](../how-to/operations.md#how-long-a-server-may-be-away)",
            "replay": "what tells a batch that comes again from another one: `digest` of its rows, `count` of its rows, "
            "or its `token` alone; see [the digest of rows](../explanation/protocol.md#the-digest-of-rows)",
        },
    ),
    (
        "`abs-postgres`",
        "",
        postgres_sink.OPTIONS,
        {
            "url": "libpq URI or keyword string; `jdbc:postgresql:` is understood too",
            "dbtable": "`table` or `schema.table`, quoted where needed",
            "user": "instead of what the URL says",
            "password": "instead of what the URL says",
            "write": "`append`, or `upsert` by `key`",
            "key": "columns of the key, comma between; needed by `upsert`",
            "orderby": "upsert: of several rows of one key in an epoch, the one with the greatest value here is taken",
            "batchsize": "rows that are sent at a time",
            "createtable": "create a missing table from the input's schema",
            "stateschema": "schema of registers, markers and staging",
            "locktimeout": "how long to wait for a lock",
            "connecttimeout": "how long to wait for a connection",
        },
    ),
    (
        "`abs-kafka` as a sink",
        "`kafka.*` are librdkafka's settings, by its names; see [Kafka](kafka.md#use).",
        kafka_sink.OPTIONS,
        {
            "topic": "of every record; without it the column `topic` says; never a register's or a side topic",
            "registertopic": "the compacted topic that holds the jobs' registers",
            "producer": "who sends the records, `auto`, `columnar` or `librdkafka`: see [how records are sent](kafka.md#how-records-are-sent)",
        },
    ),
    (
        "`abs-s3`",
        "Credentials are never options: boto3's chain finds them.",
        s3_sink.OPTIONS,
        BUCKET
        | {
            "path": "`s3://bucket/prefix`; the bucket must exist",
            "fileformat": "`parquet`, `json` (an object a line), `csv`, `arrow` (IPC files)",
            "compression": "parquet: `snappy` (default), `zstd`, `gzip`, `lz4`, `brotli`, `none`; json and csv: `none` "
            "(default), `gzip`, `zstd`; arrow: `none` (default), `lz4`, `zstd`",
            "partitionby": "columns of the input, comma between, that become folders (`name=value`); none that begins "
            "with `_` or `.`, since readers pass over such folders",
            "sse": "server-side encryption: `AES256`, `aws:kms`, `aws:kms:dsse`; the bucket's by default",
            "ssekmskeyid": "the key for the latter two",
            "filename": "what file names begin with; `{epoch}`, `{partition}` and `{date}` may be in it",
            "partsize": "bytes of a part of an upload",
            "uploadthreads": "parts that a task sends at once",
            "rowgroupsize": "bytes of a row group",
            "maxfilesize": "after so many bytes a task begins another file",
            "maxopenfiles": "folders that a task writes to at once; rows of others wait on the local disk",
            "targetfilesize": "size of the files that `wal` composes",
            "header": "whether CSV files begin with the columns' names",
            "statepath": "where the register lies, in the same bucket; `_abs` below `path` by default",
        },
    ),
    (
        "`abs-kafka` as a source",
        "`kafka.*` are librdkafka's settings, by its names; those that would take offsets out of the engine's hands, and Java's, are refused with what to do instead. See [Kafka as a source](kafka-source.md).",
        kafka_source.OPTIONS,
        {
            "subscribe": "topics; exactly one of `subscribe`, `assign` and `subscribePattern` is needed",
            "assign": "partitions, as JSON: topic to partitions",
            "subscribePattern": "matches whole names of topics, never internal topics or side topics",
            "startingOffsets": "`earliest`, `latest`, or JSON per partition (-2 earliest, -1 latest); by default "
            "`latest` in a stream, `earliest` in a batch",
            "startingTimestamp": "milliseconds; comes before the offsets",
            "startingOffsetsByTimestamp": "milliseconds per partition, as JSON; comes before the offsets",
            "startingOffsetsByTimestampStrategy": "`error` or `latest`, where no record is late enough",
            "endingOffsets": "batch only: `latest` (default) or JSON per partition",
            "endingTimestamp": "batch only: milliseconds",
            "endingOffsetsByTimestamp": "batch only: milliseconds per partition, as JSON",
            "maxOffsetsPerTrigger": "of an epoch, shared out in proportion to how far behind partitions are; Spark 4.2 or "
            "newer",
            "minPartitions": "cut ranges into so many tasks at least",
            "maxRecordsPerPartition": "cut ranges so that a task has no more records",
            "failOnDataLoss": "whether records that are gone end the query",
            "includeHeaders": "whether there is a column `headers`",
            "winners": "whether side topics are read: see [topics that `protocol=idempotent` "
            "wrote](kafka-source.md#topics-that-protocolidempotent-wrote)",
            "batchsize": "rows of an Arrow batch, at most; large records make smaller batches",
        },
    ),
    (
        "`abs-files`",
        "S3's credentials are found by boto3's chain. See [files as a source](files-source.md).",
        files_source.OPTIONS,
        BUCKET
        | {
            "path": "a folder, a file, or a glob (`*`, `?`, `[a-z]`, `{a,b}`); local, `file:` or `s3://`",
            "fileformat": "`parquet`, `json` (an object a line), `csv`, `arrow` (IPC files and streams), `text`",
            "log": "for streams: where the log is; in the checkpoint by default",
            "checkpointLocation": "for streams: Spark's",
            "maxFilesPerTrigger": "of an epoch; all by default",
            "maxBytesPerTrigger": "of an epoch; a file is never in two epochs",
            "latestFirst": "begin with the newest files",
            "pathGlobFilter": "as Spark's; hidden files (`_`, `.`) are passed over",
            "recursiveFileLookup": "as Spark's",
            "changedFiles": "`ignore`: a file that changed after it was taken does not stop the query",
            "maxPartitionBytes": "of a task; big files are divided, small ones share a task",
            "minPartitions": "tasks of an epoch, at least",
            "batchsize": "rows of an Arrow batch, at most (parquet, arrow)",
            "header": "csv: whether the first line names the columns; they are found by name then",
            "sep": "csv: between two columns",
            "quote": "csv: around a value",
            "escape": "csv: before a quote within a value; by default a quote is doubled",
            "nullValue": "csv: how null is written",
        },
    ),
)


def written(sections: Sections = SECTIONS) -> str:
    """The page.

    Raises:
        ValueError: an option has no line, or a line has no option.
    """
    parts = [HEAD]
    for title, note, options, lines in sections:
        shown = [option for option in options if option.name not in UNSHOWN]
        differ = {option.name for option in shown} ^ {*lines}
        if differ:
            raise ValueError(
                f"{title}: give a line to, or drop that of: {', '.join(sorted(differ))}"
            )
        rows = "".join(f"| `{o.name}` | {_default(o)} | {lines[o.name]} |\n" for o in shown)
        parts += [
            f"## {title}\n",
            f"{note}\n" if note else "",
            f"| option | default | |\n| --- | --- | --- |\n{rows}",
        ]
    return "\n".join(part for part in parts if part)


def _default(option: Option) -> str:
    value = option.default
    if value is None or value in ("", ()):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float):
        return f"{value:g} s"
    if isinstance(value, int) and value >= 1 << 20 and value % (1 << 20) == 0:
        return f"`{value >> 20}m`"
    return f"`{value}`"


if __name__ == "__main__":
    PAGE.write_text(written())
