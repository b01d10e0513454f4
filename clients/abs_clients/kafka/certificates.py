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


def ssl_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """The TLS context for librdkafka's settings.

    Raises OptionError if a file cannot be read, or the key's password is wrong.
    """
    trusted = settings.get("ssl.ca.location")
    of_a_folder = trusted is not None and Path(trusted).is_dir()
    try:
        context = ssl.create_default_context(
            cafile=None if of_a_folder else trusted,
            capath=trusted if of_a_folder else None,
            cadata=settings.get("ssl.ca.pem"),
        )
        _own_certificate(context, settings)
    except (OSError, ValueError) as error:
        raise OptionError(
            f"The certificates of kafka.ssl.* cannot be read: {type(error).__name__}: {error}.",
            remedy=CERTIFICATES_REMEDY,
        ) from error
    if settings.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
        context.check_hostname = False
    if settings.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _own_certificate(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    password = settings.get("ssl.key.password", "")  # without one, OpenSSL asks the terminal for it
    certificate, key = settings.get("ssl.certificate.location"), settings.get("ssl.key.location")
    if certificate is not None and key is not None:
        context.load_cert_chain(certificate, key, password)
    elif certificate is not None or "ssl.certificate.pem" in settings:
        # Python loads a chain from a file only; this one is gone, and was readable by us alone.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(_pem(settings, "ssl.certificate") + "\n" + _pem(settings, "ssl.key"))
            file.flush()
            context.load_cert_chain(file.name, None, password)


def _pem(settings: Mapping[str, str], name: str) -> str:
    """The PEM text of ``<name>.pem``, or of the file ``<name>.location``."""
    text = settings.get(f"{name}.pem")
    return Path(settings[f"{name}.location"]).read_text() if text is None else text
