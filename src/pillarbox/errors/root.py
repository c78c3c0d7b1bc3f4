"""The root of the errors, and the refusal of settings that every part may raise."""

from typing import ClassVar


class PillarboxError(Exception):
    """Say what happened, what it means for delivery, and what to do."""

    code: ClassVar[str] = "pillarbox"


class InvalidConfig(PillarboxError, ValueError):
    """Refuse a setting that cannot work, before anything starts."""

    code = "invalid-config"

    def __init__(self, setting: str, problem: str, remedy: str) -> None:
        super().__init__(f"{setting} {problem}; {remedy}")
        self.setting, self.problem, self.remedy = setting, problem, remedy
