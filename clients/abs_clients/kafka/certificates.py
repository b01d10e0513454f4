"""TLS by librdkafka's settings for Python's clients, and the files of certificates that they name."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path

from abs_clients.kafka.settings import Settings
from abs_clients.readfiles import ReadFiles
from abs_core.errors import OptionError

CERTIFICATES_REMEDY = (
    "check kafka.ssl.ca.location, kafka.ssl.certificate.location, kafka.ssl.key.location and "
    "kafka.ssl.key.password: each machine of the job reads these files."
)

_FILES = (
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.crl.location",
    "ssl.keystore.location",
)
"""The settings that name a file, or a folder of files, which clients read when they are made."""


def certificate_files(settings: Settings) -> ReadFiles:
    """The files of certificates that clients with these settings read."""
    pairs = dict(settings.pairs)
    paths = [pairs[name] for name in _FILES if name in pairs]
    return ReadFiles(paths, lambda: ssl_context(pairs))


def ssl_context(given: Mapping[str, str]) -> ssl.SSLContext:
    """The TLS context for librdkafka's settings.

    Raises OptionError if a file cannot be read, or the key's password is wrong.
    """
    trusted = given.get("ssl.ca.location")
    of_a_folder = trusted is not None and Path(trusted).is_dir()
    try:
        context = ssl.create_default_context(
            cafile=None if of_a_folder else trusted,
            capath=trusted if of_a_folder else None,
            cadata=given.get("ssl.ca.pem"),
        )
        _own_certificate(context, given)
    except (OSError, ValueError) as error:
        raise OptionError(
            f"The certificates of kafka.ssl.* cannot be read: {type(error).__name__}: {error}.",
            remedy=CERTIFICATES_REMEDY,
        ) from error
    if given.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
        context.check_hostname = False
    if given.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _own_certificate(context: ssl.SSLContext, given: Mapping[str, str]) -> None:
    password = given.get("ssl.key.password", "")  # without one, OpenSSL asks the terminal for it
    certificate, key = given.get("ssl.certificate.location"), given.get("ssl.key.location")
    if certificate is not None and key is not None:
        context.load_cert_chain(certificate, key, password)
    elif certificate is not None or "ssl.certificate.pem" in given:
        # Python loads a chain from a file only; this one is gone, and was readable by us alone.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(_pem(given, "ssl.certificate") + "\n" + _pem(given, "ssl.key"))
            file.flush()
            context.load_cert_chain(file.name, None, password)


def _pem(given: Mapping[str, str], what: str) -> str:
    """The PEM text of ``<what>.pem``, or of the file ``<what>.location``."""
    text = given.get(f"{what}.pem")
    return Path(given[f"{what}.location"]).read_text() if text is None else text
