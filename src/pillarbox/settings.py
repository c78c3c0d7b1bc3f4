"""Settings of a part: from a file, variables and arguments; what cannot work is refused."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from pillarbox.errors import InvalidConfig


def chosen_settings(
    kind: type,
    part: str,
    environ: Mapping[str, str] | None,
    file: Path | str | None,
    arguments: Mapping[str, Any],
) -> dict[str, Any]:
    """Read a TOML file's table `[part]`, then `PILLARBOX_<PART>_*`, then arguments.

    What comes later wins. The file may also be named by `PILLARBOX_SETTINGS`; `kind` is the
    dataclass whose fields are the settings.
    """
    env = os.environ if environ is None else environ
    kinds = {item.name: item.type for item in fields(kind)}
    file = file or env.get("PILLARBOX_SETTINGS") or None
    chosen = {} if file is None else _from_file(Path(file), part, list(kinds))
    for name, wanted in kinds.items():
        variable = f"PILLARBOX_{part}_{name}".upper()
        if text := env.get(variable):
            chosen[name] = _parsed(variable, text, wanted)
    return {**chosen, **arguments}


def check_whole(setting: str, value: int, low: int, high: int) -> None:
    """Refuse what is no whole number in a range."""
    if type(value) is not int or not low <= value <= high:
        raise InvalidConfig(setting, f"is {value!r}", f"use a whole number from {low} to {high}")


def check_between(setting: str, value: float, low: float, high: float) -> None:
    """Refuse what is no number in a range."""
    if type(value) not in (int, float) or not low <= value <= high:
        raise InvalidConfig(setting, f"is {value!r}", f"use a number from {low:g} to {high:g}")


def check_not_below(setting: str, value: float, other: str, floor: float) -> None:
    """Refuse a setting that is lower than another one."""
    if value < floor:
        raise InvalidConfig(
            setting, f"is {value:g}, and {other} is {floor:g}", f"make it at least {other}"
        )


def check_one_of(setting: str, value: object, choices: tuple[object, ...]) -> None:
    """Refuse what is none of the choices."""
    if type(value) is not type(choices[0]) or value not in choices:
        names = ", ".join(map(str, choices))
        raise InvalidConfig(setting, f"is {value!r}", f"use one of {names}")


def _from_file(path: Path, part: str, known: list[str]) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.read_text("utf-8")).get(part, {})
    except FileNotFoundError:
        raise InvalidConfig("settings file", f"{path} is missing", "create or unset it") from None
    except (OSError, ValueError) as error:
        raise InvalidConfig("settings file", f"cannot be read: {error}", "mend it") from None
    if not isinstance(table, dict):
        raise InvalidConfig(part, "is no table", f"write its settings under [{part}]")
    if unknown := sorted(set(table) - set(known)):
        raise InvalidConfig(
            f"{part}.{unknown[0]}", "is no setting", f"use one of {', '.join(known)}"
        )
    return dict(table)


def _parsed(variable: str, text: str, kind: Any) -> Any:
    if kind is bool:
        if text.lower() not in ("true", "false", "1", "0"):
            raise InvalidConfig(variable, f"is {text!r}", "set it to true or false")
        return text.lower() in ("true", "1")
    if kind not in (int, float):
        return text
    try:
        return kind(text)
    except ValueError:
        remedy = "set it to a whole number" if kind is int else "set it to a number of seconds"
        raise InvalidConfig(variable, f"is {text!r}", remedy) from None
