"""Read the frozen SQL of the migrations, and fill in what a database chooses for itself."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from string import Template

VERSIONS = (1, 2, 3)
# A version that several parts share is a script for each part, and one that ends it.
PARTS = {3: ("readmodel_", "saga_", "")}


class SqlTemplate(Template):
    """SQL with places for checked identifiers and numbers, written `@{name}`."""

    delimiter = "@"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What one database chose when its outbox was created; all values are checked before."""

    dialect: str = "postgresql"
    schema: str | None = None
    shards: int = 64
    partitioned: bool = False

    def tokens(self) -> dict[str, str]:
        """Return the texts for the places in the SQL."""
        return {
            "schema": qualifier(self.schema),
            "shards": str(self.shards),
            "mask": str(self.shards - 1),
            "layout": "partitioned" if self.partitioned else "plain",
            "partition_by": " PARTITION BY RANGE (id)" if self.partitioned else "",
        }


def qualifier(schema: str | None) -> str:
    """Return what stands before a table's name; quoted, because `order` is a plain name too."""
    return f'"{schema}".' if schema else ""


def script(version: int, choices: Choices) -> str:
    """Return the SQL that brings a database to a version, as one text."""
    names = [f"{version:04}_{part}{choices.dialect}.sql" for part in PARTS.get(version, ("",))]
    if (version, choices.dialect, choices.partitioned) == (1, "postgresql", False):
        names.append("0001_postgresql_plain.sql")
    return "\n".join(_filled(name, choices) for name in names)


def downgrade_script(version: int, choices: Choices) -> str:
    """Return the SQL that takes a version away."""
    names = [
        f"{version:04}_{part}{choices.dialect}_downgrade.sql" for part in PARTS.get(version, ("",))
    ]
    return "\n".join(_filled(name, choices) for name in names)


def statements(text: str) -> Iterator[str]:
    """Split a script into statements; a semicolon inside `$$` ends none."""
    lines: list[str] = []
    quoted = False
    for line in text.splitlines():
        if not quoted and (not line.strip() or line.startswith("--")):
            continue
        lines.append(line)
        quoted ^= line.count("$$") % 2 == 1
        if line.endswith(";") and not quoted:
            yield "\n".join(lines).removesuffix(";")
            lines = []


def _filled(name: str, choices: Choices) -> str:
    text = (files("pillarbox.migrations") / "versions" / name).read_text("utf-8")
    return SqlTemplate(text).substitute(choices.tokens())
