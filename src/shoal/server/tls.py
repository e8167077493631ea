"""TLS for the TCP listener: a certificate that is given, or one that the server makes for itself.

A self-made certificate proves nothing by its issuer; clients pin its SHA-256 fingerprint, which the
server writes to `server.json` and `shoal login` shows. It is kept in `keys/`, so that it stays the same
over restarts, and is made anew when its files are removed.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import ssl
from pathlib import Path
from typing import NamedTuple

from shoal.objects.errors import Invalid

__all__ = ["Tls", "is_loopback", "server_tls"]

_VALID_DAYS = 3650
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Tls(NamedTuple):
    """What a listener needs, and what its clients pin."""

    context: ssl.SSLContext
    fingerprint: str
    """SHA-256 of the certificate, in hexadecimal."""


def server_tls(keys: Path, certificate: str = "", key: str = "") -> Tls:
    """TLS with the given certificate (PEM, chain included) and key, or with the server's own.

    Raises:
        Invalid: the files cannot be read, or do not belong together.
    """
    if bool(certificate) != bool(key):
        raise Invalid("a certificate and its key go together", hint="give --tls-cert and --tls-key")
    if not certificate:
        certificate, key = str(keys / "tls.crt"), str(keys / "tls.key")
        if not (Path(certificate).exists() and Path(key).exists()):
            _make(Path(certificate), Path(key))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
        pem = Path(certificate).read_text(encoding="ascii")
        first = pem[pem.index(_BEGIN) : pem.index(_END) + len(_END)]
        fingerprint = hashlib.sha256(ssl.PEM_cert_to_DER_cert(first)).hexdigest()
    except (OSError, ValueError) as error:
        raise Invalid(
            f"the certificate {certificate} with the key {key} cannot be used: {error}"
        ) from error
    return Tls(context, fingerprint)


def is_loopback(address: str) -> bool:
    """Whether `HOST:PORT` can be reached from this machine alone."""
    return address.rpartition(":")[0].strip("[]") in _LOOPBACK


_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def _make(certificate: Path, key: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "shoal")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=_VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(private, hashes.SHA256())
    )
    text = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    # the certificate goes first and comes last, so that it never stands beside another key
    certificate.unlink(missing_ok=True)
    for path, data in ((key, text), (certificate, made.public_bytes(serialization.Encoding.PEM))):
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        draft.replace(path)
