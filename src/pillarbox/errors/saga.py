"""Sagas that cannot go on."""

from collections.abc import Sequence

from pillarbox.errors.root import PillarboxError


class SagaError(PillarboxError):
    """A saga cannot go on as things are; it stands as it was, and waits."""

    code = "saga"


class SagaVersionMissing(SagaError):
    """A saga was started with a version of its definition that this process does not have."""

    code = "saga-version-missing"

    def __init__(self, name: str, version: int, known: Sequence[int]) -> None:
        super().__init__(
            f"{name} was started with version {version}, and this process has "
            f"{', '.join(map(str, known))}; register that version beside the others until no saga "
            "of it is open"
        )
        self.name, self.version, self.known = name, version, tuple(known)


class SagaChanged(SagaError):
    """The steps of a definition are not those that a running saga was started with."""

    code = "saga-changed"

    def __init__(
        self, name: str, version: int, started: Sequence[str], defined: Sequence[str]
    ) -> None:
        super().__init__(
            f"{name} {version} was started with the steps {', '.join(started)}, and is defined with "
            f"{', '.join(defined)}; restore the definition, and give the changed one the next version"
        )
        self.name, self.version = name, version
        self.started, self.defined = tuple(started), tuple(defined)
