"""A certificate authority of our own, with certificates that must be taken or refused."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pillarbox.servers import TlsFiles

_DAY: Final = timedelta(days=1)
_HERE: Final = ("localhost", "127.0.0.1")
_ELSEWHERE: Final = ("elsewhere.example",)
# A server's own readiness check shows the server's certificate as a client.
_USAGE: Final = x509.ExtendedKeyUsage(
    [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
)


@dataclass(frozen=True, slots=True)
class Issuer:
    """Whoever signs a certificate."""

    name: x509.Name
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files of one test run; all but `stranger` are signed by `authority`."""

    authority: Path
    good: TlsFiles
    wrong_host: TlsFiles
    expired: TlsFiles
    self_signed: TlsFiles
    client: TlsFiles
    stranger: TlsFiles
    """The client's certificate of an authority that no server knows."""


def make_certificates(folder: Path) -> Certificates:
    """Make an authority and what it signs; quick, since the keys are short."""
    ours, other = _authority("Pillarbox Tests"), _authority("Somebody Else")
    files = _Files(folder, _write(folder / "authority.pem", _pem(ours.certificate)))
    return Certificates(
        authority=files.authority,
        good=files.signed("good", _HERE, ours),
        wrong_host=files.signed("wrong-host", _ELSEWHERE, ours),
        expired=files.signed("expired", _HERE, ours, ends=-_DAY),
        self_signed=files.signed("self-signed", _HERE, None),
        client=files.signed("client", (), ours),
        stranger=files.signed("stranger", (), other),
    )


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@dataclass(frozen=True, slots=True)
class _Files:
    folder: Path
    authority: Path

    def signed(
        self, name: str, hosts: Sequence[str], issuer: Issuer | None, *, ends: timedelta = _DAY
    ) -> TlsFiles:
        """Write a certificate and its key; without an issuer it signs itself."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(f"pillarbox-{name}")
        signer = issuer.key if issuer else key
        draft = _draft(subject, issuer.name if issuer else subject, key, ends)
        draft = draft.add_extension(
            x509.BasicConstraints(ca=False, path_length=None), critical=True
        )
        draft = draft.add_extension(_USAGE, critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            draft = draft.add_extension(names, critical=False)
        if issuer:
            known = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key())
            draft = draft.add_extension(known, critical=False)
        made = draft.sign(signer, hashes.SHA256())
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return TlsFiles(
            certificate=_write(self.folder / f"{name}.pem", _pem(made)),
            key=_write(self.folder / f"{name}.key", secret),
            authority=self.authority,
        )


def _authority(words: str) -> Issuer:
    key, name = ec.generate_private_key(ec.SECP256R1()), _name(words)
    draft = _draft(name, name, key, _DAY)
    draft = draft.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    draft = draft.add_extension(_may_sign(), critical=True)
    known = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    draft = draft.add_extension(known, critical=False)
    return Issuer(name, key, draft.sign(key, hashes.SHA256()))


def _draft(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, ends: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * _DAY)
        .not_valid_after(now + ends)
    )


def _may_sign() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _name(words: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, words)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
