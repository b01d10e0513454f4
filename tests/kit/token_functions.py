"""Functions that return tokens, as a job may name them: ``kafka.oauth_cb=module:function``."""

from __future__ import annotations

import os
import time

from abs_clients.kafka.login_rules import ID, SECRET, URL
from abs_clients.kafka.oidc import fetch


def of_server(config: str) -> tuple[str, float]:
    """A token of the server that ``ABS_TEST_TOKENS`` names: URL, client and secret."""
    url, client, secret = os.environ["ABS_TEST_TOKENS"].split()
    return fetch({URL: url, ID[0]: client, SECRET[0]: secret})


def in_milliseconds(config: str) -> tuple[str, float]:
    return "text", time.time() * 1000 + 60_000


def expired(config: str) -> tuple[str, float]:
    return "text", time.time() - 1


def whole(config: str) -> tuple[str, float, str, dict[str, str]]:
    return config, time.time() + 60, "me", {"logicalCluster": "lkc-1"}


def nothing(config: str) -> None:
    return None


def failing(config: str) -> tuple[str, float]:
    raise LookupError("no metadata service")
