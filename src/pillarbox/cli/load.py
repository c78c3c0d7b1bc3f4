"""Find the object that `--app module:object` names."""

import importlib
import sys
from pathlib import Path

from pillarbox.app import Pillarbox
from pillarbox.errors import InvalidConfig


def load_app(name: str | None) -> Pillarbox:
    """Return the `Pillarbox` of an application; without a name, one from the variables."""
    if name is None:
        return Pillarbox.from_env()
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise InvalidConfig("--app", f"is {name!r}", "write it as module:object, as in app:box")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise
        raise InvalidConfig(
            "--app", f"names the module {module_name!r}, which is not found", "run it where it is"
        ) from None
    found = getattr(module, attribute, None)
    if not isinstance(found, Pillarbox):
        problem = f"names {attribute!r}, which is {'missing' if found is None else 'no Pillarbox'}"
        raise InvalidConfig("--app", problem, "name the Pillarbox object of the module")
    return found
