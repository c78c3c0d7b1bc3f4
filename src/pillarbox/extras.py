"""Parts that need a package which is not always installed."""

import importlib
from types import ModuleType

from pillarbox.errors import InvalidConfig


def import_with_extra(module: str, what: str, extra: str) -> ModuleType:
    """Import what only an extra can import, or name the extra."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise InvalidConfig(
            what,
            f"needs {error.name}, which is not installed",
            f"pip install 'pillarbox[{extra}]'",
        ) from None
