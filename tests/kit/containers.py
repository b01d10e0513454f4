"""Whether tests can use containers here."""

from __future__ import annotations

from functools import partial

from abs_core.errors import ConfigError, UnavailableError
from abs_services.containers import engine
from abs_services.containers.engine import image_of, is_here
from abs_services.contracts import KINDS


def why_unusable() -> str:
    """Why containers cannot be used here, as a reason for a skipped test; else empty.

    An image that is not pulled counts as missing: a test run pulls nothing.
    """
    try:
        with engine() as client:
            client.ping()
            here = partial(is_here, client)
            missing = [name for kind in KINDS if not here(name := image_of(kind, here))]
    except (ConfigError, UnavailableError) as error:
        return error.what
    if missing:
        return f"images are not here: {', '.join(missing)} (docker/build-images.sh builds them)"
    return ""
