from tests.support.database import database, databases

__all__ = ["database", "databases"]
