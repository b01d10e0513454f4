"""The Spark driver of one contestant in every situation, each with its own target and checkpoint.

Settings are JSON in ``ABS_SCOREBOARD``; the verdicts go to its ``results``, as they come. A verdict
is what a reader of the target finds at the end: see ``trial.judge``; besides, ``part seen`` and
``one ahead``, of readers meanwhile, and why a contestant is not put into a situation.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from pyspark.errors import StreamingQueryException

from abs_chaos.faults import Faults, before, name_of
from abs_core.errors import AbsError
from abs_testing.calls import Loss
from benchmarks.scoreboard import job
from benchmarks.scoreboard.second_driver import SecondDriver, into_two, ours_twice, second_target
from benchmarks.scoreboard.trial import SHARE, Trial, all_of, held, wait_for

SLOW_S = 3.0
"""How long the second task of an epoch takes where a reader looks meanwhile."""
STARTS_S = 400.0
"""A driver that has not begun by then is not tried."""
BLOCKED_S = 60.0
"""A driver that stands still is woken after so long, if its successor waits for it until then."""
REPLIES = 4
"""So many commits lose their reply, each in an epoch of its own."""


def killed_between(trial: Trial) -> str:
    trial.add()
    trial.add()
    trial.run()
    trial.forget_newest_commit()
    trial.add()
    trial.run()
    return trial.verdict()


def equal_rows(trial: Trial) -> str:
    trial.add([*range(SHARE), *range(10)])
    trial.add([*range(5), *range(SHARE, SHARE + 20)])
    trial.run()
    once = Counter(dict.fromkeys(trial.expected, 1))
    by_key = trial.given["unique"] and not trial.error
    if by_key and all(rows == once for rows in trial.rows().values()):
        return "one for each key"
    return trial.verdict()


def read_meanwhile(trial: Trial) -> str:
    trial.add()
    trial.run()
    (earlier,) = {rows.total() for rows in trial.rows().values()}
    trial.add()
    trial.add()
    seen: set[int] = set()
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.2):
            seen.update(rows.total() for rows in trial.rows().values())

    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows and batch[0][0].as_py() >= 2 * SHARE:
                threading.Event().wait(SLOW_S)
            yield batch

    reader = threading.Thread(target=look)
    reader.start()
    try:
        trial.run(2, lambda stream: stream.mapInArrow(slow, job.SCHEMA))
    finally:
        over.set()
        reader.join()
    part = {count for count in seen if earlier < count < trial.expected.total()}
    verdict = trial.verdict()
    return "part seen" if part and verdict == "passed" else verdict


def _two_at_once(trial: Trial) -> tuple[job.Settings, dict[str, Any]]:
    """The second driver is in the second task of an epoch, whose first one is through."""
    trial.run()
    trial.add()
    trial.add()
    hold = trial.hold("other")
    # Each driver has its own staging table: what a recipe says of it, in its favour.
    stage = f"{trial.given['stage']}_other"
    given = {**trial.given, "files": 2, "hold": hold, "two": False, "stage": stage}
    trial.other.start(given)
    assert wait_for(hold["arrived"], STARTS_S), "the second driver has not begun"
    return given, hold


def second_driver(trial: Trial) -> str:
    trial.add()
    given, hold = _two_at_once(trial)
    own = trial.hold("first")
    first = threading.Thread(target=trial.run, args=(2, lambda stream: held(stream, own)))
    first.start()
    wait_for(own["arrived"], 20)
    for sign in (hold, own):
        Path(sign["go"]).touch()
    first.join()
    trial.note = f"first: {trial.error[:300]} second: {trial.other.ended(given)[:300]}"
    trial.add()
    trial.run(2)
    return trial.verdict()


def stood_still(trial: Trial) -> str:
    trial.add()
    return _stands_still(trial, trial.add)


def late_older(trial: Trial) -> str:
    if not trial.given["can_update"]:
        return "only appends"
    trial.given["keyed"] = True
    trial.add()
    return _stands_still(trial, lambda: trial.add(range(SHARE, 3 * SHARE), amount=7.0))


def _stands_still(trial: Trial, add: Callable[[], None]) -> str:
    """The second driver stands still in an epoch; the first one writes it, and one more."""
    given, hold = _two_at_once(trial)
    trial.other.stand_still()
    Path(hold["go"]).touch()
    watch = threading.Timer(BLOCKED_S, trial.other.wake)
    watch.start()
    trial.run(2)
    first = trial.error
    add()
    trial.run(2)
    watch.cancel()
    trial.other.wake()
    woken = trial.other.ended(given)
    trial.note = f"first: {first[:300]} woken: {woken[:300]}"
    trial.run(2)
    return trial.verdict()


def deleted_checkpoint(trial: Trial) -> str:
    trial.add()
    trial.add()
    trial.run()
    shutil.rmtree(trial.checkpoint)
    trial.add()
    trial.run(2)
    return trial.verdict()


def restored_checkpoint(trial: Trial) -> str:
    trial.add()
    trial.run()
    backup = trial.checkpoint.with_name("backup")
    shutil.copytree(trial.checkpoint, backup)
    trial.add()
    trial.run()
    shutil.rmtree(trial.checkpoint)
    backup.rename(trial.checkpoint)
    trial.add()
    trial.run(2)
    return trial.verdict()


_COMMIT = re.compile(rb"\bCOMMIT\b(?! DROP| DELETE)")
_SERVERS = {"postgres": "url", "kafka": "bootstrap", "s3": "endpoint"}


def lost_reply(trial: Trial) -> str:
    ours = trial.given["way"] if trial.given["protocol"] else ""
    targets = ["s3"] if ours == "s3" else [name for name in trial.given["reads"] if name != "seen"]
    if not targets:
        return "no server"
    with contextlib.ExitStack() as stack:
        relays = {
            name: stack.enter_context(before(trial.given[_SERVERS[name]])) for name in targets
        }
        # All goes through them: a job's target does not change from run to run.
        for name, relay in relays.items():
            if name == "postgres":
                port = re.search(r":(\d+)/", trial.given["url"])
                assert port is not None
                jdbc = trial.given["jdbc"].replace(f":{port[1]}/", f":{relay.port}/")
                trial.given["jdbc"] = jdbc
            trial.given[_SERVERS[name]] = relay.address
        trial.add()
        trial.run()
        lost = {name: _lose_replies(trial, name, relay) for name, relay in relays.items()}
        trial.note = f"replies lost: {lost}"
        return trial.verdict() if all(lost.values()) else "no reply was lost"


def _lose_replies(trial: Trial, target: str, relay: Faults) -> int:
    """How many were: the nth of an epoch's commits, for n from 1 on, each in an epoch of its own."""
    for number in range(1, REPLIES + 1):
        trial.add()
        relay.lose_if(Loss.REPLY, _commits(trial.given, target), number)
        trial.run()
        fired = relay.fired
        relay.arm(1, None)  # readers come through it, too
        if not fired:
            return number - 1
        if trial.error:
            trial.run()
    return REPLIES


def _commits(given: job.Settings, target: str) -> Callable[[bytes], bool]:
    """Which message to the server commits."""
    if target == "postgres":
        two = given["protocol"] == "2pc"
        return (
            (lambda message: b"COMMIT PREPARED" in message)
            if two
            else (lambda message: _COMMIT.search(message) is not None)
        )
    if target == "kafka":
        commit = "END_TXN" if given["protocol"] in ("2pc", "wal") else "PRODUCE"
        return lambda message: name_of(message) == commit
    return lambda message: message[:4] in (b"POST", b"PUT ")


def second_target_beside(trial: Trial) -> str:
    """The driver is killed when the first target's rows are written, and the second's are not."""
    given = trial.given
    three = given["way"] == "epoch"
    beside = given if three else second_target(given)
    trial.add()
    trial.add()
    if given["protocol"]:
        try:
            ours_twice(job.read(trial.spark, given), given, lambda rows: rows)
        except AbsError as error:  # the job does not begin: it has options that several cannot have
            trial.error = f"{type(error).__name__}: {error}"
            return trial.verdict()
    hold = {**trial.hold("other"), "from": 0}
    trial.other.start({**given, "files": 2, "hold": hold, "two": True})
    assert wait_for(hold["arrived"], STARTS_S), "the second driver has not begun"
    first = given["reads"][0]
    over = threading.Event()
    for _ in range(20):  # a query of its own for the first target may need its time
        if trial.rows()[first].total():
            break
        over.wait(0.2)
    trial.other.kill()
    ahead = trial.rows()[first].total()
    try:
        into_two(trial.spark, {**given, "files": 2})
    except StreamingQueryException as error:
        trial.error = all_of(error)
    verdict = trial.verdict(*(() if three else [trial.rows(beside)]))
    return "one ahead until the restart" if ahead and verdict == "passed" else verdict


SITUATIONS: dict[str, Callable[[Trial], str]] = {
    "killed_between": killed_between,
    "equal_rows": equal_rows,
    "read_meanwhile": read_meanwhile,
    "second_driver": second_driver,
    "stood_still": stood_still,
    "deleted_checkpoint": deleted_checkpoint,
    "restored_checkpoint": restored_checkpoint,
    "late_older": late_older,
    "second_target": second_target_beside,
    "lost_reply": lost_reply,
}


def placed(given: job.Settings, number: int) -> job.Settings:
    """The settings of one situation, with names of its own."""
    place = Path(given["work"], str(number))
    paths = {name: str(place / name) for name in ("input", "checkpoint", "folder", "ended")}
    names = {name: f"{given[name]}_{number}" for name in ("table", "stage", "batches", "iceberg")}
    own = {"topic": f"{given['topic']}-{number}", "path": f"{given['path']}/{number}"}
    return {**given, **paths, **names, **own, "place": str(place), "job": f"situation-{number}"}


def make(given: job.Settings, *, keyed: bool) -> None:
    """The target."""
    key = " PRIMARY KEY" if keyed else ""
    with psycopg.connect(given["url"], autocommit=True) as connection:
        for table, unique in ((given["table"], key), (given["stage"], "")):
            connection.execute(
                f"CREATE TABLE {table} (id bigint{unique}, word text, amount double precision)"
            )
    if "kafka" in given["reads"]:
        from confluent_kafka import admin

        broker = admin.AdminClient({"bootstrap.servers": given["bootstrap"]})
        new = admin.NewTopic(given["topic"], 2, 1)  # type: ignore[attr-defined]
        for made in broker.create_topics([new]).values():
            made.result()


def main() -> None:
    given: job.Settings = json.loads(os.environ["ABS_SCOREBOARD"])
    spark, other = job.session(given), SecondDriver(Path(given["pids"]))
    verdicts: dict[str, dict[str, str]] = {}
    failed = False
    if {"second_driver", "stood_still", "late_older", "second_target"} & {*given["situations"]}:
        other.begin()
    try:
        for number, (name, situation) in enumerate(SITUATIONS.items()):
            if name not in given["situations"]:
                continue
            own = placed(given, number)
            Path(own["input"]).mkdir(parents=True)
            keyed = given["unique"] or (given["can_update"] and name == "late_older")
            for one in (own, second_target(own)):
                make(one, keyed=keyed)
            trial = Trial(spark, own, other)
            try:
                verdict = situation(trial)
            except Exception:  # noqa: BLE001 - not made, or not read: no verdict, and the next one
                traceback.print_exc()
                other.kill()
                failed = True
                continue
            told = trial.error.splitlines()
            marks = ("[ABS-", "psycopg.errors.", "Error: ", "Exception: ")
            lines = (line for mark in marks for line in told if mark in line)
            error = next(lines, "".join(told[:1]))[:600]
            verdicts[name] = {"verdict": verdict, "error": error, "note": trial.note}
            Path(given["results"]).write_text(json.dumps(verdicts))
            print(name, verdicts[name], flush=True)
    finally:
        other.kill()
        spark.stop()
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
