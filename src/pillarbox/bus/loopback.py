"""Whether a broker runs on this machine: there missing topics are made, and plain text is fine."""

import ipaddress
from collections.abc import Iterable


def host_of(address: str) -> str:
    """Return the host of `host:port`, with or without a user before it."""
    place = address.strip().rpartition("@")[2]
    host, colon, port = place.rpartition(":")
    return (host if colon and port.isdigit() else place).strip("[]")


def all_loopback(hosts: Iterable[str]) -> bool:
    """Tell whether every host is this machine."""
    return all(_is_loopback(host) for host in hosts)


def plaintext_weakness(shown: str, remedy: str, *, here: bool) -> list[str]:
    """Say that others can read along on a plain line, unless it stays on this machine."""
    return [] if here else [f"{shown} is not encrypted: {remedy}"]


def unverified_weakness(shown: str) -> list[str]:
    """Say that a certificate is taken as it comes."""
    return [f"the certificate of {shown} is not verified: anybody can pass for it"]


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
