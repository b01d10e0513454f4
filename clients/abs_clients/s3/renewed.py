"""Credentials of a vendor for boto3: asked for at the first request, and renewed before they end."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from botocore.credentials import DeferredRefreshableCredentials

from abs_clients.s3.server import Vendor
from abs_core.errors import RefusedError

_UNKNOWN = 3600.0
"""Seconds after which credentials are renewed that do not say when they end."""

_TAKEN_BACK = {"ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "400", "403"}
"""Codes of servers; an answer to HEAD has its status alone."""

_TRIES = 3


class Renewed(DeferredRefreshableCredentials):  # type: ignore[misc]
    """Threads share it; one of them renews.

    They are renewed in the last half of their life, at most 15 minutes before its end. In the last
    quarter a request waits for that.

    Raises, where a request needs them:
        AbsError: the vendor's own; RefusedError: they have ended already.
    """

    def __init__(self, vendor: Vendor) -> None:
        super().__init__(self._vended, "the catalog")
        self._vendor = vendor

    def taken_back(self, response: Any, attempts: int, **_: Any) -> float | None:
        """Let botocore sign a request again, with new credentials, where the old ones ended early."""
        if response is None or attempts >= _TRIES:
            return None
        if str(response[1].get("Error", {}).get("Code")) not in _TAKEN_BACK:
            return None
        self._expiry_time = datetime.fromtimestamp(0, UTC)
        return 0.0

    def _vended(self) -> dict[str, str | None]:
        vended, now = self._vendor.vend(), time.time()
        expires = now + _UNKNOWN if vended.expires is None else vended.expires
        life = expires - now
        if life <= 0:
            raise RefusedError(
                "The catalog vends credentials for the store that have ended already.",
                remedy="set this machine's clock, or the catalog's.",
            )
        self._advisory_refresh_timeout = min(900.0, life / 2)
        self._mandatory_refresh_timeout = min(600.0, life / 4)
        return {
            "access_key": vended.key,
            "secret_key": vended.secret,
            "token": vended.token,
            "expiry_time": datetime.fromtimestamp(expires, UTC).isoformat(),
        }
