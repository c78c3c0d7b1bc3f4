"""Addresses of databases: one spelling, the right driver, never a password in a message."""

import pytest

from pillarbox.database import async_url, shown, sync_url
from pillarbox.errors import InvalidConfig


@pytest.mark.parametrize(
    ("url", "plain", "asynchronous"),
    [
        ("postgresql://u:p@h/d", "postgresql+psycopg", "postgresql+psycopg"),
        ("postgres://u:p@h/d", "postgresql+psycopg", "postgresql+psycopg"),
        ("postgresql+psycopg://u:p@h/d", "postgresql+psycopg", "postgresql+psycopg"),
        ("postgresql+psycopg2://u:p@h/d", "postgresql+psycopg", "postgresql+psycopg"),
        ("postgresql+asyncpg://u:p@h/d", "postgresql+psycopg", "postgresql+asyncpg"),
        ("sqlite:///f.db", "sqlite", "sqlite+aiosqlite"),
        ("sqlite+aiosqlite:///f.db", "sqlite", "sqlite+aiosqlite"),
        ("sqlite://", "sqlite", "sqlite+aiosqlite"),
    ],
)
def test_the_driver_suits_the_call(url: str, plain: str, asynchronous: str) -> None:
    assert sync_url(url).drivername == plain
    assert async_url(url).drivername == asynchronous
    assert sync_url(url).database == async_url(url).database


def test_everything_but_the_driver_is_kept() -> None:
    url = sync_url("postgresql://user:p%40ss@db.example:6432/shop?application_name=x")

    assert (url.username, url.password, url.host, url.port) == ("user", "p@ss", "db.example", 6432)
    assert url.query == {"application_name": "x"}


def test_options_of_asyncpg_are_said_in_the_words_of_psycopg() -> None:
    url = sync_url("postgresql+asyncpg://h/d?ssl=require&prepared_statement_cache_size=0")

    assert url.query == {"sslmode": "require"}


@pytest.mark.parametrize(
    "url",
    ["mysql://u:secret@h/d", "u:secret@h", "", "postgresql://u:secret@h:port/d", "://u:secret@"],
)
def test_an_address_that_cannot_work_is_refused_without_its_password(url: str) -> None:
    for convert in (sync_url, async_url):
        with pytest.raises(InvalidConfig, match="use postgresql://") as refused:
            convert(url)
        assert "secret" not in str(refused.value)
        assert refused.value.__cause__ is None


def test_an_address_is_shown_without_its_password() -> None:
    assert shown(sync_url("postgresql://u:secret@h/d")) == "postgresql://u:***@h/d"


@pytest.mark.parametrize(
    "url",
    ["postgresql://bob:s3cr3t@pw@127.0.0.1:1/x", "postgresql://bob:ab@SECRET/more@127.0.0.1:1/x"],
)
def test_a_password_with_a_raw_at_sign_is_refused_and_no_part_of_it_is_shown(url: str) -> None:
    with pytest.raises(
        InvalidConfig, match="has more than one @; write an @ in the password as %40"
    ) as refused:
        sync_url(url)

    assert "pw" not in str(refused.value)
    assert "SECRET" not in str(refused.value)
