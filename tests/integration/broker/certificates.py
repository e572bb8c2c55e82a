"""Certificates of our own making: authorities, and what they sign."""

from __future__ import annotations

import datetime
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


class Files(msgspec.Struct, frozen=True):
    """Paths of a certificate and its key."""

    cert: str
    key: str


class Authority:
    """Signs certificates and writes them into `folder`. `ca` is the file to trust."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        limits = x509.BasicConstraints(ca=True, path_length=0)
        self._cert = (
            _unsigned(subject, subject, self._key, days=1).add_extension(limits, True).sign(self._key, hashes.SHA256())
        )
        self.ca = self._write(f"{name}-ca.pem", _pem(self._cert))

    def sign(self, name: str, *hosts: str, days: int = 1) -> Files:
        """Made out to host names. `days` below 0: it ended that long ago."""
        key = ec.generate_private_key(ec.SECP256R1())
        unsigned = _unsigned(_name(name), self._cert.subject, key, days=days)
        if hosts:
            names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
            unsigned = unsigned.add_extension(names, False)
        cert = unsigned.sign(self._key, hashes.SHA256())
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        stem = f"{self._name}-{name}"
        return Files(self._write(f"{stem}.pem", _pem(cert)), self._write(f"{stem}.key", private))

    def _write(self, name: str, content: bytes) -> str:
        path = self._folder / name
        path.write_bytes(content)
        return str(path)


def in_one_file(files: Files) -> str:
    path = Path(files.cert).with_suffix(".both")
    path.write_bytes(Path(files.cert).read_bytes() + Path(files.key).read_bytes())
    return str(path)


def encrypted(files: Files, password: bytes, to: Path) -> str:
    """The key once more, in a file that asks for a password."""
    key = serialization.load_pem_private_key(Path(files.key).read_bytes(), None)
    to.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(password),
        )
    )
    return str(to)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _unsigned(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: int
) -> x509.CertificateBuilder:
    ends = datetime.datetime.now(datetime.UTC) + days * _DAY
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(ends - 2 * _DAY)
        .not_valid_after(ends)
    )


def _pem(cert: x509.Certificate) -> bytes:
    return cert.public_bytes(serialization.Encoding.PEM)
