"""Find the object that `module:object` names, on the command line or in a setting."""

import importlib
import sys
from pathlib import Path

from pillarbox.app import Pillarbox
from pillarbox.errors import InvalidConfig


def load_app(name: str | None, setting: str = "--app") -> Pillarbox:
    """Return the `Pillarbox` of an application; without a name, one from the variables."""
    if name is None:
        return Pillarbox.from_env()
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise InvalidConfig(setting, f"is {name!r}", "write it as module:object, as in app:box")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise
        raise InvalidConfig(
            setting, f"names the module {module_name!r}, which is not found", "run it where it is"
        ) from None
    found = getattr(module, attribute, None)
    if not isinstance(found, Pillarbox):
        problem = f"names {attribute!r}, which is {'missing' if found is None else 'no Pillarbox'}"
        raise InvalidConfig(setting, problem, "name the Pillarbox object of the module")
    return found
