from tests.support.database import database, databases
from tests.tenancy.wall import narrow_bouncer, wall, walls

__all__ = ["database", "databases", "narrow_bouncer", "wall", "walls"]
