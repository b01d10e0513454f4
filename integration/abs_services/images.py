"""The container images of the services, named only here.

The image is the one that the environment variable names; else the one that
``docker/build-images.sh`` built, if the engine has it; else the public one. ``docker/compose.yaml``
reads the same variables and defaults.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from abs_services.contracts import Kind


@dataclass(frozen=True)
class Image:
    """One service's image.

    Attributes:
        variable: environment variable that overrides it.
        built: tag of ``docker/build-images.sh``.
        public: the project's own image on the public registry, of a fixed version.
    """

    variable: str
    built: str
    public: str


IMAGES: Mapping[Kind, Image] = {
    "postgres": Image("ABS_POSTGRES_IMAGE", "abs-sinks/postgres:18", "postgres:18.1"),
    "kafka": Image("ABS_KAFKA_IMAGE", "abs-sinks/kafka:4.1.1", "apache/kafka:4.1.1"),
    "s3": Image("ABS_S3_IMAGE", "abs-sinks/s3:4", "chrislusf/seaweedfs:4.48"),
}


def image_of(kind: Kind, is_here: Callable[[str], bool]) -> str:
    """The image to use; ``is_here`` tells whether the engine has an image."""
    image = IMAGES[kind]
    named = os.environ.get(image.variable)
    if named:
        return named
    return image.built if is_here(image.built) else image.public
