"""Words of others: what is kept of them in error columns, and what is not."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.exc import IntegrityError

from pillarbox.words import scrubbed, storable

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("amqp://shop:hunter2@broker:5672/x says no", "amqp://shop:***@broker:5672/x says no"),
        ("postgresql://u:hunter2@2@h/db", "postgresql://u:***@h/db"),
        ("nats://hunter2@broker", "nats://***@broker"),
        ("host=h password=hunter2 user=u", "host=h password=*** user=u"),
        ("sasl.password: 'hunter2 x', retry", "sasl.password: ***, retry"),
        ("Authorization: Bearer hunter2", "Authorization: ***"),
        ('{"api_key": "hunter2", "a": 1}', '{"api_key": ***, "a": 1}'),
        ("https://h/?token=hunter2&page=2", "https://h/?token=***&page=2"),
        (
            "not null\nDETAIL:  Failing row contains (1, a\nhunter2).\nHINT: none",
            "not null",
        ),
    ],
)
def test_secrets_are_left_out_of_what_others_say(said: str, kept: str) -> None:
    assert scrubbed(said) == kept


def test_the_values_of_a_statement_are_left_out() -> None:
    error = IntegrityError("INSERT INTO card VALUES (:n)", {"n": SECRET}, ValueError("duplicate"))

    assert SECRET in str(error)
    assert storable(str(error)) == "(builtins.ValueError) duplicate"


@pytest.mark.parametrize(
    "said",
    [
        "password authentication failed for user shop",
        "http://broker:8222/varz answers 503",
        "message of 2,000,000 bytes is larger than 1,048,576",
        "unexpected end of token",
    ],
)
def test_words_without_a_secret_stay_as_they_are(said: str) -> None:
    assert storable(said) == said


@given(st.text(alphabet="ab1", min_size=1, max_size=30), st.sampled_from(["password", "TOKEN"]))
def test_no_secret_that_is_named_is_kept(secret: str, name: str) -> None:
    hidden = f"zz{secret}zz"

    assert hidden not in storable(f"it failed ({name}={hidden}) at s://u:{hidden}@h/x")


def test_what_is_kept_is_bounded_and_fits_every_database() -> None:
    kept = storable("a\x00b\ud800" + "z" * 9_000)

    assert kept.startswith("a�b?z")
    assert len(kept) == 2_000
    assert re.fullmatch(r"[^\x00\ud800-\udfff]*", kept)
