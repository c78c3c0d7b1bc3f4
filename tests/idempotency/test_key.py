"""The header Idempotency-Key, as the IETF draft has it and as clients send it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.idempotency.errors import IdempotencyKeyInvalid
from pillarbox.idempotency.key import parse_key

UUID = "8e03978e-40d5-43e8-bc93-6894a57f9324"


@pytest.mark.parametrize(
    ("sent", "key"),
    [
        (f'"{UUID}"', UUID),
        (UUID, UUID),
        (f'  "{UUID}"\t', UUID),
        ('"with space, and comma"', "with space, and comma"),
        (r'"a \"quoted\" \\ word"', r'a "quoted" \ word'),
        ('"key";version=1', "key"),
        ("YWJj/+==", "YWJj/+=="),
        ("urn:uuid:1", "urn:uuid:1"),
        ("x" * 255, "x" * 255),
        ('"' + "x" * 255 + '"', "x" * 255),
    ],
)
def test_a_key_is_read_quoted_or_bare(sent: str, key: str) -> None:
    assert parse_key([sent.encode()]) == key


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        ([b""], "is empty"),
        ([b"   "], "is empty"),
        ([b'""'], "is empty"),
        ([b"x" * 256], "256 characters"),
        ([b'"' + b"x" * 256 + b'"'], "256 characters"),
        ([b"a\x00b"], "control characters"),
        ([b'"a\x7fb"'], "control characters"),
        ([b'"a\nb"'], "control characters"),
        (["clé".encode()], "not ASCII"),
        ([b"\xff"], "not ASCII"),
        ([b"a", b"b"], "more than once"),
        ([b"a", b"a"], "more than once"),
        ([b"a, b"], "neither"),
        ([b'"a", "b"'], "neither"),
        ([b'"open'], "neither"),
        ([b'a"b'], "neither"),
        ([rb'"a\b"'], "neither"),
        ([b"two words"], "neither"),
    ],
)
def test_what_is_no_single_key_is_refused_with_its_fault(sent: list[bytes], problem: str) -> None:
    with pytest.raises(IdempotencyKeyInvalid, match=problem):
        parse_key(sent)


def test_no_header_is_no_key() -> None:
    assert parse_key([]) is None


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(sent: bytes) -> None:
    try:
        key = parse_key([sent])
    except IdempotencyKeyInvalid:
        return
    assert key is not None
    assert 1 <= len(key) <= 255
    assert key.isascii()
    assert key.isprintable()


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=255))
def test_a_quoted_key_arrives_as_it_was_meant(key: str) -> None:
    quoted = key.replace("\\", "\\\\").replace('"', '\\"')

    assert parse_key([f'"{quoted}"'.encode()]) == key
