"""Chooses the provider of servers."""

from __future__ import annotations

import os

from abs_core.errors import ConfigError
from abs_services.contracts import Provider, Services


def chosen_provider() -> Provider:
    """The provider in ``ABS_SERVICES`` (native if unset); ConfigError on any other value."""
    named = os.environ.get("ABS_SERVICES", "").strip().lower() or Provider.NATIVE
    try:
        return Provider(named)
    except ValueError as error:
        raise ConfigError(
            f"ABS_SERVICES is {named!r}", remedy=f"set it to one of {', '.join(Provider)}."
        ) from error


def services(provider: Provider | None = None, *, lasting: bool = False) -> Services:
    """The services of a provider; default: the chosen one. Starts nothing.

    ``lasting`` ones keep their data at a known place and may be detached; the others are temporary
    and end with this process.
    """
    # Imported late: each way needs packages that the others do not.
    match provider or chosen_provider():
        case Provider.NATIVE:
            from abs_services.native import NativeServices

            return NativeServices(lasting=lasting)
        case Provider.DOCKER:
            from abs_services.containers import DockerServices

            return DockerServices(lasting=lasting)
        case Provider.EXTERNAL:
            from abs_services.external import ExternalServices

            return ExternalServices()
