"""The pytest plugin: markers, settings and the fixture `pillarbox`.

pytest imports this in every run of whoever has installed Pillarbox, so it imports nothing of it. The
rest is imported when a test asks for the fixture.
"""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the ini file name the application's box."""
    parser.addini("pillarbox_app", "the Pillarbox of the tests, as module:object")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and, where pytest-asyncio runs, the fixtures."""
    config.addinivalue_line(
        "markers",
        "pillarbox(app, consumers): the Pillarbox of a test, as module:object, and the names of "
        "the consumers that its `deliver` runs (all of them by default)",
    )
    name = "fixtures" if config.pluginmanager.hasplugin("asyncio") else "missing"
    config.pluginmanager.import_plugin(f"pytest_pillarbox.{name}")
