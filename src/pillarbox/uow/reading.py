"""Whether a statement only reads: then a unit of work that is not committed has nothing to undo."""

from typing import Any, Final

from sqlalchemy import TextClause, TextualSelect
from sqlalchemy.sql.dml import UpdateBase
from sqlalchemy.sql.elements import ColumnClause
from sqlalchemy.sql.functions import Function, FunctionElement, GenericFunction
from sqlalchemy.sql.selectable import SelectBase
from sqlalchemy.sql.visitors import iterate

# Functions that SQLAlchemy does not define, and that compute and nothing else.
_COMPUTES: Final = frozenset({
    "abs", "avg", "bool_and", "bool_or", "btrim", "ceil", "ceiling", "date_part", "date_trunc",
    "floor", "greatest", "ifnull", "initcap", "json_extract", "json_extract_path_text",
    "jsonb_extract_path_text", "least", "left", "length", "lower", "lpad", "ltrim", "nullif",
    "position", "replace", "right", "round", "row_number", "rpad", "rtrim", "split_part",
    "strftime", "strpos", "substr", "substring", "to_char", "to_date", "to_number",
    "to_timestamp", "trim", "upper",
})  # fmt: skip


def only_reads(clause: Any) -> bool:
    """Say of a statement that it is a SELECT with nothing else in it; of none, that it is not.

    A function that nobody here knows may write, as may a text with a call or a sub-statement in it,
    and one that is a whole statement.
    """
    return isinstance(clause, SelectBase) and not any(map(_may_write, iterate(clause)))


def _may_write(part: Any) -> bool:
    if isinstance(part, FunctionElement):
        return not _only_computes(part)
    if isinstance(part, ColumnClause):
        return part.is_literal and "(" in part.name  # that of count(*) is "*"
    if isinstance(part, TextClause):
        return "(" in part.text
    return isinstance(part, UpdateBase | TextualSelect)


def _only_computes(function: FunctionElement[Any]) -> bool:
    if isinstance(function, GenericFunction):
        # A subclass of the user's may be anything.
        return type(function).__module__.startswith("sqlalchemy.")
    return (
        isinstance(function, Function)
        and not function.packagenames
        and function.name.lower() in _COMPUTES
    )
