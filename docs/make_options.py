"""Writes ``docs/reference/options.md``: every option with its default, as the code has them.

    python docs/make_options.py

Names and defaults come from the code. What an option is for stands here; an option that has no line
here, and a line that has no option, are errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from abs_clients.kafka.setting_table import NO_EQUIVALENT, SETTINGS
from abs_clients.options import Option, options_of, share
from abs_clients.s3.server import Server
from abs_sinks.delta.sink import DeltaOptions
from abs_sinks.iceberg.sink import IcebergOptions
from abs_sinks.kafka import options as kafka_sink
from abs_sinks.options import COMMON, limit_text
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

BUCKET = {
    "endpoint": "`http://host:port` of a server other than Amazon's (boto3's `AWS_ENDPOINT_URL` works too)",
    "region": "default: that of boto3",
    "pathstyle": "`true` or `false`; default: true if there is an `endpoint`",
    "timeout": "the longest time of one request",
}

LETTERS = {
    "deadlettermax": f"the largest share of dead letters (`0.01`, `1%`) {limit_text()}; the epoch "
    "that passes it stops the query, and nothing of it is written",
    "deadlettercolumns": "columns of the input that dead letters do not show, for instance personal data; such letters "
    "cannot be replayed if the target needs the columns",
}

TABLE = {
    "partitionby": "partition columns of a table that is created; an existing table must have the same",
    "createtable": "create the table if it is missing",
    "compression": "of the Parquet files: `snappy` (default), `zstd`, `gzip`, `lz4`, `brotli`, `none`",
    "schemachange": "columns of the input that the table lacks: `fail` (default), `ignore` them, or `add` them to the table",
    "deadletter": "in `abs_spark.epoch`: another sink (`sink:NAME`) for rows that the table does not take; see [dead letters](dead-letters.md)",
    **LETTERS,
    "partsize": "bytes of a part of an upload",
    "uploadthreads": "parts that a task sends at once",
    "rowgroupsize": "bytes of a row group",
    "maxfilesize": "bytes after which a task begins another file",
    "maxopenfiles": "number of partitions that a task writes to at once; rows of others wait on the local disk",
}

REGISTRY = {
    "value.format": "`bytes`, or `avro`: records with a schema, see [formats](formats.md)",
    "key.format": "the same for the key",
    "registry.url": "of the schema registry, `https://host:port`; several are separated by commas",
    "registry.basic.auth.user.info": "`user:password`",
    "registry.ssl.ca.location": "file or folder of the authorities that are trusted",
    "registry.ssl.certificate.location": "the client's certificate",
    "registry.ssl.key.location": "its key",
    "registry.ssl.key.password": "the key's password",
    "registry.bearer.auth.credentials.source": "`STATIC_TOKEN`, `OAUTHBEARER` or `OAUTHBEARER_AZURE_IMDS`",
    "registry.bearer.auth.token": "of `STATIC_TOKEN`",
    "registry.bearer.auth.client.id": "of `OAUTHBEARER`",
    "registry.bearer.auth.client.secret": "of `OAUTHBEARER`",
    "registry.bearer.auth.scope": "of `OAUTHBEARER`",
    "registry.bearer.auth.issuer.endpoint.url": "of `OAUTHBEARER`: where tokens come from",
    "registry.bearer.auth.logical.cluster": "of Confluent's cloud",
    "registry.bearer.auth.identity.pool.id": "of Confluent's cloud",
    "registry.proxy": "an HTTP proxy to the registry",
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
            "job": "a stable name of the job; default: the query's id. Only a named job always detects a "
            "deleted checkpoint",
            "epoch": "batch writes: the name of this batch. A second write under the same name changes nothing",
            "adopt": "a token that an error message names: your consent to take over a register",
            "checkpointLocation": "Spark's option; set it here too if you set it in the session's configuration",
            "patience": "how long to retry while a server does not answer: a number of seconds, or `3m`; "
            "see [operations](../how-to/operations.md#how-long-a-server-may-be-away)",
            "replay": "how a repeated batch is compared with the first one: `digest` of its rows, `count` of its rows, "
            "or its `token` only; see [the digest of rows](../explanation/protocol.md#the-digest-of-rows)",
        },
    ),
    (
        "`abs-postgres`",
        "",
        postgres_sink.OPTIONS,
        {
            "url": "libpq URI or keyword string, or `jdbc:postgresql:`",
            "dbtable": "`table` or `schema.table`, quoted where needed",
            "user": "takes precedence over the URL",
            "password": "takes precedence over the URL",
            "passwordcommand": "a program whose first line is the password; run for each new connection",
            "passwordfile": "a file that holds the password; read for each new connection",
            "passwordfunction": "`module:function`, or an entry point of the group `abs_sinks.tokens`; gets libpq's parameters as a dict and returns the password or token, for each new connection",
            "write": "`append`, `upsert` by `key`, or `changes`: see [changes](../how-to/changes.md)",
            "key": "columns of the key, separated by commas; `upsert` needs it; default for `changes`: the primary key",
            "orderby": "upsert: if an epoch has several rows of one key, the row with the greatest value in this column wins. "
            "Across epochs the later epoch wins, even if its value is smaller; where that is wrong, take `write=changes` with `sequenceby`",
            "onconflict": "append with `protocol=wal`: a row that a unique index has already makes the epoch `fail`, or is left out "
            "(`nothing`); `update` is the same as `write=upsert`",
            "sequenceby": "changes: the columns of a change's position. Of two changes of a key the one with the greater position wins",
            "applyasdeletes": "changes: which ones delete: a boolean column, or `column=value,value`; default: `op=d`",
            "exceptcolumns": "changes: columns of the input that are not written. The columns of operation and position are written where the table has them",
            "positions": "changes: where the position of a row is kept: in the `table`'s own columns, or in a `side` table of the state schema",
            "tombstones": "changes: how long the position of a deleted row is kept: seconds, or `2d`, by the server's clock",
            "unchanged": "changes: the column, an array of strings, that lists the columns which a change leaves as they are",
            "committedat": "changes: the column with the milliseconds since 1970 at which the source committed a change. By it "
            "[a source that goes back](../how-to/changes.md#a-source-that-goes-back) is noticed. Default: `source_ts_ms`, if the input has it and the table does not; empty: none",
            "batchsize": "rows that are sent at a time",
            "createtable": "create a missing table from the input's schema",
            "schemachange": "columns of the input that the table lacks: `fail` (default), `ignore` them, or `add` them to the table "
            "([new columns](postgres-types.md#new-columns))",
            "stateschema": "the schema of registers, markers and staging tables",
            "locktimeout": "how long to wait for a lock",
            "deadletter": "a table of the same database for rows that the table refuses by their data, under the same decision; "
            "created if it is missing; in `abs_spark.epoch` also another sink (`sink:NAME`), for what no column can hold. "
            "Without it such a row stops the query; see [dead letters](dead-letters.md)",
            **LETTERS,
            "connecttimeout": "how long to wait for a connection",
        },
    ),
    (
        "`abs-kafka` as a sink",
        "`kafka.*` are settings of librdkafka, by their names there; see [Kafka](kafka.md#use) and [logins](../how-to/access.md).",
        kafka_sink.OPTIONS,
        {
            "topic": "the topic of every record; without it, the column `topic` names it. Never a register's topic or a side topic",
            "registertopic": "the compacted topic that holds the jobs' registers",
            "producer": "which sender to use, `auto`, `columnar` or `librdkafka`: see [how records are sent](kafka.md#how-records-are-sent)",
            "wal": "with `protocol=wal`: `file:///folder` (an absolute path that all machines see), or "
            "`s3://bucket/prefix` (`?endpoint=http://host:port&region=...`). Default of a stream: "
            "`<checkpointLocation>/abs/wal`",
            "write": "`append`, or `changes`: rows are changes of keys, see "
            "[changes into a topic](../how-to/changes.md#changes-into-a-topic)",
            "sequenceby": "changes: the columns of a change's position, by which a key's records of an epoch are ordered",
            "applyasdeletes": "changes: which ones delete: a boolean column, or `column=value,value`; their records have no value",
            "deadletter": "a topic for rows that the topic does not take, in the same transaction; in `abs_spark.epoch` also "
            "another sink (`sink:NAME`). Without it such a row stops the query; see [dead letters](dead-letters.md)",
            **LETTERS,
            "value.schema": "the Avro schema to write with, as JSON; default: the newest one of the subject",
            "key.schema": "the same for the key",
            "value.subject.name.strategy": "which subject the schema has: `topic` (default), `record`, `topic_record`",
            "key.subject.name.strategy": "the same for the key",
            "registry.register": "whether a schema that the registry does not have is registered",
        }
        | REGISTRY,
    ),
    (
        "`abs-s3`",
        "Credentials are never options: boto3 finds them in its usual places.",
        s3_sink.OPTIONS,
        BUCKET
        | {
            "path": "`s3://bucket/prefix`; the bucket must exist",
            "fileformat": "`parquet`, `json` (an object a line), `csv`, `arrow` (IPC files)",
            "compression": "parquet: `snappy` (default), `zstd`, `gzip`, `lz4`, `brotli`, `none`; json and csv: `none` "
            "(default), `gzip`, `zstd`; arrow: `none` (default), `lz4`, `zstd`",
            "partitionby": "columns of the input, separated by commas, that become folders "
            "([`name=value`](s3.md#columns-in-folder-names)). A name must not "
            "begin with `_` or `.`, because readers skip such folders",
            "sse": "server-side encryption: `AES256`, `aws:kms`, `aws:kms:dsse`; default: the bucket's setting",
            "ssekmskeyid": "the key for `aws:kms` and `aws:kms:dsse`",
            "filename": "the beginning of file names; may contain `{epoch}`, `{partition}` and `{date}`",
            "partsize": "bytes of a part of an upload",
            "uploadthreads": "parts that a task sends at once",
            "rowgroupsize": "bytes of a row group",
            "maxfilesize": "bytes after which a task begins another file",
            "maxopenfiles": "number of folders that a task writes to at once; rows of other folders wait on the local disk",
            "targetfilesize": "size of the files that `wal` composes",
            "header": "whether CSV files begin with the names of the columns",
            "statepath": "where the register is, in the same bucket; default: `_abs` below `path`",
            "deadletter": "a folder of the same bucket, `s3://bucket/folder`, for rows that the files cannot hold, under the same "
            "decision; in `abs_spark.epoch` also another sink (`sink:NAME`). Without it such a row stops the query; see "
            "[dead letters](dead-letters.md)",
            **LETTERS,
        },
    ),
    (
        "`abs-delta`",
        "See [tables](tables.md). Credentials are never options: boto3 finds them in its usual places.",
        (*options_of(DeltaOptions), *options_of(Server)),
        BUCKET
        | {
            "path": "the table's folder: `s3://bucket/prefix`, or an absolute path that all processes see",
        }
        | TABLE,
    ),
    (
        "`abs-iceberg`",
        "`catalog.*` are pyiceberg's own properties of a catalog, such as `catalog.type` and `catalog.uri`. See [tables](tables.md).",
        (*options_of(IcebergOptions), *options_of(Server)),
        BUCKET
        | {
            "table": "the table with its namespace: `db.events`",
            "catalog": "the name of the catalog, also in pyiceberg's configuration file",
        }
        | TABLE,
    ),
    (
        "`abs-kafka` as a source",
        "`kafka.*` are settings of librdkafka, by their names there. Settings that would let Kafka manage the offsets, and names of the Java client, are refused; the error says what to do instead. See [Kafka as a source](kafka-source.md).",
        kafka_source.OPTIONS,
        {
            "subscribe": "topics; exactly one of `subscribe`, `assign` and `subscribePattern` is needed",
            "assign": "partitions, as JSON: topic to partitions",
            "subscribePattern": "matches whole names of topics, never internal topics or side topics",
            "startingOffsets": "`earliest`, `latest`, or JSON per partition (-2 earliest, -1 latest); by default "
            "`latest` in a stream, `earliest` in a batch",
            "startingTimestamp": "milliseconds; takes precedence over the offsets",
            "startingOffsetsByTimestamp": "milliseconds per partition, as JSON; takes precedence over the offsets",
            "startingOffsetsByTimestampStrategy": "`error` or `latest`, if no record is late enough",
            "endingOffsets": "batch only: `latest` (default) or JSON per partition",
            "endingTimestamp": "batch only: milliseconds",
            "endingOffsetsByTimestamp": "batch only: milliseconds per partition, as JSON",
            "maxOffsetsPerTrigger": "limit of an epoch, divided in proportion to the lag of the partitions, one offset for each "
            "at least (if there are more partitions, they take turns); Spark 4.2 or newer",
            "minPartitions": "the least number of tasks; ranges are divided",
            "maxRecordsPerPartition": "the most records of a task; ranges are divided",
            "failOnDataLoss": "whether the query stops if records are gone",
            "includeHeaders": "whether rows have a column `headers`",
            "winners": "whether side topics are read; see [topics that `protocol=idempotent` "
            "wrote](kafka-source.md#topics-that-protocolidempotent-wrote)",
            "batchsize": "rows of an Arrow batch, at most; large records make smaller batches",
            "patience": "how long to wait for brokers that do not answer, and for the next record of a "
            "range: like the sinks' `patience`",
            "value.schema": "the Avro schema that the column is to have, as JSON; default: the newest one of the topic",
            "key.schema": "the same for the key",
        }
        | REGISTRY,
    ),
    (
        "`abs-files`",
        "boto3 finds the credentials for S3 in its usual places. See [files as a source](files-source.md).",
        files_source.OPTIONS,
        BUCKET
        | {
            "path": "a folder, a file, or a glob (`*`, `?`, `[a-z]`, `{a,b}`); local, `file:` or `s3://`",
            "fileformat": "`parquet`, `json` (an object a line), `csv`, `arrow` (IPC files and streams), `text`",
            "log": "for streams: where the log is; default: in the checkpoint",
            "checkpointLocation": "for streams: Spark's option",
            "maxFilesPerTrigger": "limit of an epoch; default: all files",
            "maxBytesPerTrigger": "limit of an epoch; a file is never in two epochs",
            "latestFirst": "begin with the newest files",
            "pathGlobFilter": "as in Spark; hidden files (`_`, `.`) are skipped, and hidden folders that a glob in path does not name",
            "recursiveFileLookup": "as in Spark",
            "changedFiles": "`ignore`: a file that changes after an epoch has taken it does not stop the query",
            "adopt": "tokens that error messages name, separated by commas: your consent to give up a file, or to "
            "read it anew ([what to do](../how-to/operations.md#a-file-cannot-be-read))",
            "timeZone": "the zone of timestamps in folder names that have no offset: that of the Spark session that wrote them; "
            "such folders are refused without it",
            "maxPartitionBytes": "limit of a task; large files are divided, small files share a task",
            "minPartitions": "the least number of tasks of an epoch",
            "batchsize": "rows of an Arrow batch, at most (parquet, arrow)",
            "header": "csv: whether the first line names the columns; columns are then found by name",
            "sep": "csv: the separator of columns",
            "quote": "csv: the character around a value",
            "escape": "csv: the character before a quote or itself within quotes; default: a quote is doubled",
            "nullValue": "csv: the text that means null, without quotes; nothing does, too",
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
    if value is None or value in ("", ()):
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
