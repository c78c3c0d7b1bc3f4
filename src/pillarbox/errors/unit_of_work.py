"""Units of work that are used outside their life."""

from pillarbox.errors.root import PillarboxError


class UnitOfWorkError(PillarboxError):
    """A unit of work was used outside its life."""

    code = "unit-of-work"


class NoActiveUnitOfWork(UnitOfWorkError):
    """An event was recorded where no transaction can carry it."""

    code = "no-active-unit-of-work"
