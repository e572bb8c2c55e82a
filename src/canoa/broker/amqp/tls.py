"""TLS to the broker: which certificates are shown and trusted, and what a failed handshake means to whoever set it up.

Verification is on unless it is switched off: the broker's certificate must be signed by a trusted authority, be in
date, and be made out to the host name of the URL.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

import msgspec

from canoa.broker.amqp.errors import AmqpError, CertificateOutOfDate, LinkLost, SetupMismatch
from canoa.errors import SettingError

SPEAKS_TLS: Final = "this port speaks TLS; write amqps:// in the broker's URL"

# Numbers of OpenSSL (x509_vfy.h); Python has no names for them.
_NOT_YET_VALID, _EXPIRED = 9, 10
_UNKNOWN_ISSUER: Final = frozenset({2, 18, 19, 20, 21})
_OTHER_HOST: Final = frozenset({62, 64})

_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNSUPPORTED_PROTOCOL", "HTTP_REQUEST"})
_ASKS_FOR_OURS: Final = frozenset({"TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_HANDSHAKE_FAILURE"})
_REFUSES_OURS: Final = frozenset(
    {
        "TLSV1_ALERT_UNKNOWN_CA",
        "SSLV3_ALERT_BAD_CERTIFICATE",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED",
        "SSLV3_ALERT_CERTIFICATE_REVOKED",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
        "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",
    }
)


class Tls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files in PEM form. They are read again for every link, so that renewed certificates count without a restart."""

    ca: str = ""  # authorities that are trusted; empty: the system's
    cert: str = ""  # our own certificate, with those between it and its authority
    key: str = ""  # its private key; empty: in the same file
    verify: bool = True


def new_context(tls: Tls) -> ssl.SSLContext:
    """Raises `SettingError` that names the file. Blocks for some milliseconds."""
    context = ssl.create_default_context(cafile=_readable("tls_ca", tls.ca))
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.key and not tls.cert:
        raise SettingError("tls_key is set and tls_cert is not; set both, or none of them")
    if tls.cert:
        _load_own(context, tls)
    return context


def _load_own(context: ssl.SSLContext, tls: Tls) -> None:
    cert, key = _readable("tls_cert", tls.cert), _readable("tls_key", tls.key)
    try:
        context.load_cert_chain(cert or "", key, password="")  # or OpenSSL would ask for one on the terminal
    except ssl.SSLError as exc:
        if exc.reason == "KEY_VALUES_MISMATCH":
            raise SettingError(f"tls_key {tls.key!r} does not belong to tls_cert {tls.cert!r}") from exc
        raise SettingError(
            f"tls_cert {tls.cert!r} and tls_key {tls.key or tls.cert!r} are no certificate and unencrypted key "
            "in PEM form ('-----BEGIN …')"
        ) from exc


def _readable(setting: str, path: str) -> str | None:
    """The path, once it is known to hold PEM; None where none is set."""
    if not path:
        return None
    try:
        content = Path(path).read_bytes()
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else exc
        raise SettingError(f"{setting} names {path!r}, which cannot be read: {reason}") from exc
    if b"-----BEGIN " not in content:
        raise SettingError(f"{setting} names {path!r}, which is not in PEM form ('-----BEGIN …')")
    return path


def explained(error: Exception, host: str) -> AmqpError | None:
    """What a failed handshake means; None for errors that are not about TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _untrusted(error, host)
    if not isinstance(error, ssl.SSLError):
        return None
    if error.reason in _NOT_TLS:
        return SetupMismatch(
            "this port does not speak TLS; name the broker's TLS port (usually 5671), or write amqp:// for a line "
            "that anybody on it may read"
        )
    if error.reason in _ASKS_FOR_OURS:
        return SetupMismatch("the broker asks for a client certificate; set tls_cert and tls_key to one it trusts")
    if error.reason in _REFUSES_OURS:
        return SetupMismatch(
            f"the broker does not accept our certificate ({error.reason}); check that tls_cert is in date and signed "
            "by an authority the broker trusts (ssl_options.cacertfile)"
        )
    return LinkLost(f"TLS failed: {error.reason or error}")


def _untrusted(error: ssl.SSLCertVerificationError, host: str) -> AmqpError:
    code = error.verify_code
    if code == _EXPIRED:
        return CertificateOutOfDate("the broker's certificate has expired; renew it there, or check the clock here")
    if code == _NOT_YET_VALID:
        return CertificateOutOfDate("the broker's certificate is not valid yet; check the clock here")
    if code in _UNKNOWN_ISSUER:
        return SetupMismatch(
            f"the broker's certificate is not signed by an authority we trust ({error.verify_message}); "
            "set tls_ca to the file with its CA"
        )
    if code in _OTHER_HOST:
        return SetupMismatch(
            f"the broker's certificate is not made out to {host!r}; use a host name that it carries in the broker's URL"
        )
    return SetupMismatch(f"the broker's certificate cannot be verified: {error.verify_message}")
