"""Lays out the build contexts of the three images: programs from wheels and jars, no downloads by URL.

Run by build-images.sh: ``stage.py FOLDER`` fills FOLDER/postgres, FOLDER/kafka and FOLDER/s3, and
prints "kind tag" for each, the tags being those that abs_services.containers.engine looks for.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from abs_services.containers.engine import IMAGES
from abs_services.java import find_java
from abs_services.native.kafka_jars import broker_jars
from abs_services.native.postgres import find_binaries
from abs_services.native.s3 import find_weed


def main(folder: Path) -> None:
    binaries = find_binaries(None)
    install, site = binaries.parent, binaries.parent.parent.parent
    # The programs look for libraries two folders up, as in the wheel.
    (folder / "postgres" / "opt").mkdir(parents=True)
    for part in (install, *site.glob(f"{install.parent.name}.libs")):
        shutil.copytree(part, folder / "postgres" / "opt" / part.relative_to(site), symlinks=True)
    shutil.copytree(broker_jars(find_java()), folder / "kafka" / "jars")
    (folder / "s3").mkdir()
    shutil.copy2(find_weed(), folder / "s3" / "weed")
    for kind, image in IMAGES.items():
        sys.stdout.write(f"{kind} {image.built}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
