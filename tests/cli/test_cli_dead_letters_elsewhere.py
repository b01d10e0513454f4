"""``abs deadletters`` and ``abs audit --deadletters`` of topics and folders."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlencode

import pytest

from abs_services import KafkaService, S3Service
from abs_testing.case import Case, rows
from tests.kit.command import abs_
from tests.kit.kafka import Variant
from tests.sinks.dead_letters import is_poison
from tests.sinks.kafka import buried as kafka_buried
from tests.sinks.s3 import buried as s3_buried

pytestmark = pytest.mark.services


def _abs(*arguments: str) -> tuple[int, str]:
    done = abs_(*arguments)
    return done.exit_code, done.stdout


def listed(*where: str) -> list[str]:
    """The ids of the letters that are listed."""
    code, printed = _abs("deadletters", "list", *where, "--json")
    found = json.loads(printed)
    assert code == (1 if found else 0)
    return [str(each["id"]) for each in found]


def audited(folder: Path, given: Sequence[Mapping[str, object]], *actual: str) -> tuple[int, str]:
    (folder / "given.json").write_text("".join(f"{json.dumps(row)}\n" for row in given))
    return _abs("audit", "--expected", str(folder / "given.json"), "--actual", *actual)


def test_letters_of_a_topic_are_listed_shown_replayed_and_audited(
    kafka: KafkaService, tmp_path: Path
) -> None:
    kafka.start()
    with kafka_buried.buried(kafka.bootstrap, Variant("2pc")) as harness:
        case = Case(harness)
        case.run().epoch(0, [(n, json.dumps({"id": n})) for n in range(10)])
        case.close()
        url = f"kafka://{harness.bootstrap}/{harness.options.registertopic}"
        where = ("--url", url, "--deadletter", harness.dead)
        ids = listed(*where)
        shown = json.loads(_abs("deadletters", "show", *ids, *where)[1])
        assert [json.loads(each["row"])["key"] for each in shown] == ["2", "7"]
        topic = f"kafka://{harness.bootstrap}/{harness.topic}"
        given = [{"id": n} for n in range(10)]
        assert audited(tmp_path, given, topic)[0] == 1
        code, printed = audited(tmp_path, given, topic, "--deadletters", harness.dead)
        assert code == 0, printed
        code, printed = audited(tmp_path, given[1:], topic, "--deadletters", harness.dead)
        assert code == 1, printed
        again = ("deadletters", "replay", ids[0], *where, "--topic", harness.topic, "--yes")
        code, printed = _abs(*again)
        assert code != 0, "the partition is still not there"
        assert _abs("deadletters", "show", "9:9", *where)[0] == 1


def test_letters_of_a_folder_are_listed_shown_replayed_and_audited(
    store: S3Service, prefix: str, tmp_path: Path
) -> None:
    store.start()
    server = {"endpoint": store.endpoint, "region": store.region}
    path = f"s3://{store.bucket}/{prefix}"
    with s3_buried.buried(path, server) as harness:
        case = Case(harness)
        case.run().epoch(0, rows(0, 10))
        case.close()

        def url(**more: str) -> str:
            return f"{harness.path}?{urlencode({**server, **more})}"

        where = ("--url", url(fileformat="json"), "--deadletter", harness.dead)
        ids = listed(*where)
        shown = json.loads(_abs("deadletters", "show", *ids, *where)[1])
        assert [json.loads(each["row"])["id"] for each in shown] == [2, 7]
        notes: Callable[[int], str | None] = lambda n: "a\0b" if is_poison(n) else None  # noqa: E731
        given = [{"id": n, "value": value, "note": notes(n)} for n, value in rows(0, 10)]
        more = ("--schema", "id BIGINT, value STRING, note STRING", "--deadletters", harness.dead)
        assert audited(tmp_path, given, url())[0] == 1
        code, printed = audited(tmp_path, given, url(), *more)
        assert code == 0, printed
        parquet = ("--url", url(fileformat="parquet"), "--deadletter", harness.dead)
        again = ("deadletters", "replay", *ids, *parquet, "--yes")
        assert _abs(*again) == (0, "2 dead letters replayed\n")
        assert _abs(*again) == (0, "0 dead letters replayed\n")
        assert listed(*where) == []
