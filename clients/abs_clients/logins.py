"""Who a server takes this process for, and until when, in the words of ``abs doctor``."""

from __future__ import annotations

import ssl
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from abs_core.model import Finding

SOON_SECONDS = 14 * 86_400
"""Warn of a login that ends within this time, in seconds, and is not renewed by itself."""


def told(
    where: str,
    who: str,
    credential: str = "",
    expires: float | None = None,
    *,
    renewed: bool = False,
) -> Finding:
    """What ``abs doctor`` says of a login.

    Args:
        who: with the way in; no secret (I9).
        credential: the one that ends: "its token".
        expires: of it, in seconds since 1970; None: it does not end, or that is not known.
        renewed: the process gets the next one by itself.
    """
    text = f"{where}: logged in as {who}"
    if expires is None:
        return Finding.note(f"{text}.")
    left = expires - time.time()
    until = f"{datetime.fromtimestamp(expires, UTC):%Y-%m-%d %H:%M:%S} UTC"
    text += (
        f"; {credential} is good until {until}"
        if left > 0
        else f"; {credential} has ended at {until}"
    )
    if renewed:
        return Finding.note(f"{text}, and is renewed before.")
    if left > SOON_SECONDS:
        return Finding.note(f"{text}.")
    return Finding.warning(f"{text}.", "renew it before: new connections are refused then.")


def certificate_in(path: str | None, pem: str | None = None) -> tuple[str, float] | None:
    """Subject and expiry (seconds since 1970) of the first certificate; None if it cannot be read."""
    try:
        if path is not None:
            pem = Path(path).read_text()
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(pem or "")
            file.flush()
            # CPython's own way to read a certificate of a file; ``ssl`` shows none but a peer's.
            certificate = ssl._ssl._test_decode_cert(file.name)  # type: ignore[attr-defined]
        parts = [f"{name}={value}" for rdn in certificate["subject"] for name, value in rdn]
        return ", ".join(parts), ssl.cert_time_to_seconds(certificate["notAfter"])
    except (OSError, ValueError, KeyError, AttributeError):
        return None
