"""A real Spark cluster on this machine: a standalone master and its workers, processes of their own."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import psutil
import pyspark

from tests.spark.drivers import KilledAtTheEnd, Session, until
from tests.spark.jvm import HOME, OPTIONS, environment

EXECUTOR = "CoarseGrainedExecutorBackend"
_HOME = Path(pyspark.__file__).parent
_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")


class Cluster(KilledAtTheEnd):
    """A master and workers; each worker has executors, each with Python processes.

    Executors inherit the environment as it is when the cluster is made. Use as a context manager.

    Args:
        folder: for logs and scratch files.
        cores: of each worker.
    """

    def __init__(self, folder: Path, workers: int = 2, cores: int = 2) -> None:
        self._folder = folder
        self._cores = cores
        self._number = 0
        self._master = self._start("master", "deploy.master.Master", "--port", "0")
        until(lambda: _STARTED.search(self._master.log) is not None, "the master listens")
        found = _STARTED.search(self._master.log)
        assert found is not None
        self.url = found[1]
        self.workers: list[Session] = []
        for _ in range(workers):
            self.add_worker()

    def kill(self) -> None:
        """SIGKILL to all processes of all workers and of the master."""
        for session in (*self.workers, self._master):
            session.kill()

    def add_worker(self) -> None:
        self._number += 1
        name = f"worker{self._number}"
        given = ("--cores", str(self._cores), "--memory", "1g", "-d", str(self._folder / name))
        # A host of its own: Spark starts no speculative copy on the host of the first attempt.
        host = f"127.0.0.{self._number}"
        worker = self._start(name, "deploy.worker.Worker", *given, self.url, host=host)
        self.workers.append(worker)
        until(lambda: "Successfully registered with master" in worker.log, "a worker is there")

    def kill_worker(self) -> None:
        """SIGKILL to all processes of the oldest worker: it, its executors and their Python."""
        self.workers.pop(0).kill()

    def executors(self) -> list[psutil.Process]:
        """The JVMs of all executors."""
        return [process for worker in self.workers for process in _of(worker, EXECUTOR)]

    def python_workers(self) -> list[psutil.Process]:
        """The processes that run tasks' Python, the daemons that fork them not among them."""
        found = [p for worker in self.workers for p in _of(worker, "pyspark.daemon")]
        daemons = {p.pid for p in found}
        return [p for p in found if _parent(p) in daemons]

    def conf(self, **more: str) -> dict[str, str]:
        """Settings of a job on this cluster, with small executors, one on each worker."""
        own = {
            "spark.master": self.url,
            "spark.executor.cores": str(self._cores),
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": environment()[OPTIONS],
            "spark.cores.max": str(self._cores * len(self.workers)),
            "spark.python.daemon.module": "pyspark.daemon",  # by this name its workers are found
        }
        return {**own, **more}

    def _start(self, name: str, kind: str, *words: str, host: str = "127.0.0.1") -> Session:
        quick = environment()
        given = {
            **os.environ,
            HOME: quick.get(HOME, str(_HOME)),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": quick[OPTIONS],
            "PYSPARK_PYTHON": sys.executable,
        }
        address = ("--host", host, "--webui-port", "0")
        command = [str(_HOME / "bin" / "spark-class"), f"org.apache.spark.{kind}", *address, *words]
        return Session(command, self._folder / name, given, f"{name}.log")


def _of(session: Session, what: str) -> list[psutil.Process]:
    found = []
    for process in session.members():
        try:
            if any(what in word for word in process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def _parent(process: psutil.Process) -> int | None:
    try:
        return int(process.ppid())
    except psutil.Error:
        return None
