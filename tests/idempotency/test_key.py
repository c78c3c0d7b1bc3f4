"""The header Idempotency-Key, as the IETF draft has it and as clients send it."""

from time import perf_counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pillarbox.idempotency.errors import IdempotencyKeyInvalid
from pillarbox.idempotency.key import parse_key
from tests.idempotency.structured import Malformed, string_item

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
        ('"key";a; b="x; y";c=?1;d=:YQ==:;e=-1.5;f=@0;g=%"%c3%a9";*h=t/1', "key"),
        (r'"' + r"\\" * 255 + '"', "\\" * 255),
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
        ([b'"a";=1'], "neither"),
        ([b'"a";b=;c'], "neither"),
        ([b'"a" ;b'], "neither"),
        ([b'"a";' + b"b" * 2_000], "2,004 characters"),
        ([b" " * 2_000], "2,000 characters"),
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


ITEMS = st.one_of(
    st.from_regex(r'"[ -~]{0,9}"', fullmatch=True),
    st.from_regex(r"[A-Za-z*][!#-'*+./:^-z|~-]{0,9}", fullmatch=True),
    st.from_regex(r"@?-?[0-9]{1,16}(\.[0-9]{1,4})?", fullmatch=True),
    st.from_regex(r":[A-Za-z0-9+/=]{0,9}:", fullmatch=True),
    st.from_regex(r'%"([ -~]|%[0-9a-f]{2}){0,9}"', fullmatch=True),
    st.sampled_from(["?0", "?1", "?2", ""]),
)
PARAMETERS = st.one_of(
    st.from_regex(r"; {0,2}[a-z*][a-z0-9_.*-]{0,9}", fullmatch=True),
    st.builds("; {}={}".format, st.sampled_from(["a", "*", "A"]), ITEMS),
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=2),
)


@given(st.lists(PARAMETERS, max_size=5).map("".join))
@example(";a=b" * 40)
@example(';a="b')
def test_parameters_are_those_of_structured_fields(parameters: str) -> None:
    sent = f'"key"{parameters}'.strip()

    try:
        string_item(sent)
    except Malformed:
        with pytest.raises(IdempotencyKeyInvalid, match="neither"):
            parse_key([sent.encode()])
    else:
        assert parse_key([sent.encode()]) == "key"


@pytest.mark.parametrize(
    ("start", "repeated", "end"),
    [
        ('"k"', ";a=b", " x"),
        ('"k"', ";a", " x"),
        ('"k"', ';a=";"', " x"),
        ('"k";a=', "1", " x"),
        ('"k";', " ", "!"),
        ('"', "a", ""),
        ('"', "\\\\", ""),
        ("", "a", " x"),
    ],
)
def test_a_hostile_header_takes_no_more_than_its_length(
    start: str, repeated: str, end: str
) -> None:
    """Parameters that could be read in two ways each took twice the time for each of them."""

    def seconds(times: int) -> float:
        sent = [f"{start}{repeated * times}{end}".encode()]
        before = perf_counter()
        with pytest.raises(IdempotencyKeyInvalid, match="neither"):
            parse_key(sent)
        return perf_counter() - before

    short, long = (min(seconds(times) for _ in range(5)) for times in (10, 20))

    assert long < 20 * short
