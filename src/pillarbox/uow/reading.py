"""Whether a statement only reads: then a unit of work that is not committed has nothing to undo.

Counted as writing is whatever is no SELECT of SQLAlchemy's, and a SELECT with a part that may write:

- a function that is not among the databases' own which compute and nothing else (`functions.py`), or
  a class of functions or of other elements that is not SQLAlchemy's;
- a text or a literal column with a call of such a function, with a quoted name before a bracket, with
  a comment, or with a statement inside; a text that is a whole statement;
- a function among the rows of VALUES, an operator with a call in it, a prefix, a suffix, a hint.

It does not see what stands in no part of the SELECT: what views, rules and row-level policies call;
casts, operators and functions of the user's own that bear the names of built-in ones; calls that a
type wraps around its values, that a `column_property` makes, or a loader's option or criteria; a text
without brackets into which somebody has put a second statement. Whoever writes in such a way commits.
"""

import re
from functools import cache, partial
from textwrap import shorten
from typing import Any, Final

from sqlalchemy import ClauseElement, Column, Table, TextClause, TextualSelect, Values
from sqlalchemy.sql.dml import UpdateBase
from sqlalchemy.sql.elements import ColumnClause
from sqlalchemy.sql.functions import Function, FunctionElement, GenericFunction
from sqlalchemy.sql.operators import custom_op
from sqlalchemy.sql.selectable import ScalarValues, SelectBase
from sqlalchemy.sql.visitors import iterate

from pillarbox.uow.functions import PURE

_OWN: Final = frozenset({"sqlalchemy", "builtins", "typing", "typing_extensions", "abc"})
_BESIDES: Final = ("_prefixes", "_suffixes", "_hints", "_statement_hints")
_SHOWN: Final = 200

# After these words, and after these signs, a bracket holds a list or an expression.
_KEYWORDS: Final = frozenset({
    "all", "and", "any", "as", "between", "by", "case", "distinct", "else", "escape", "except",
    "exists", "filter", "from", "group", "having", "ilike", "in", "intersect", "is", "join",
    "lateral", "like", "limit", "materialized", "not", "offset", "on", "only", "or", "over",
    "select", "similar", "some", "symmetric", "then", "to", "union", "using", "values", "when",
    "where", "window", "zone",
})  # fmt: skip
_SIGNS: Final = frozenset("(,=<>+-*/%|&^~!#@?[")
_NAME: Final = re.compile(r"[\w$.]+$")
_NAMES_SOMETHING: Final = re.compile(r"\b(?:as|with|recursive)\s+$", re.IGNORECASE)
_NO_EXPRESSION: Final = re.compile(
    r";|--|/\*|[()]\s*(?:insert|update|delete|merge)\b", re.IGNORECASE
)


def only_reads(clause: Any, dialect: str) -> bool:
    """Say of a statement that it is a SELECT with nothing else in it; of none, that it is not."""
    if not isinstance(clause, SelectBase):
        return False
    may_write = partial(_may_write, pure=PURE.get(dialect, frozenset()))
    return not any(map(may_write, iterate(clause)))


def told(clause: ClauseElement | None) -> str:
    """Say in the words of an error why somebody counts as a writer."""
    if clause is None:
        return "it has flushed, or was asked for its connection"
    try:
        words = str(clause)
    except Exception:  # noqa: BLE001 - an element of the user's own may raise anything, or know no text
        words = type(clause).__name__
    return f"of the statement `{shorten(words, _SHOWN)}`"


def _may_write(part: Any, pure: frozenset[str]) -> bool:
    if not _is_sqlalchemys(part.__class__):
        return not isinstance(part, Column | Table)  # a subclass of those is a name all the same
    if isinstance(part, FunctionElement):
        return not _only_computes(part, pure)
    if isinstance(part, ColumnClause):
        return part.is_literal and _may_call(part.name, pure)  # that of count(*) is "*"
    if isinstance(part, TextClause):
        return _may_call(part.text, pure)
    return isinstance(part, UpdateBase | TextualSelect) or _has_more(part)


@cache
def _is_sqlalchemys(kind: type) -> bool:
    """Say whether SQLAlchemy alone decides what elements of a class are in SQL.

    The classes that it derives for annotated elements seem to be its own, whatever they derive from.
    """
    return all(base.__module__.partition(".")[0] in _OWN for base in kind.__mro__)


def _only_computes(function: FunctionElement[Any], pure: frozenset[str]) -> bool:
    if isinstance(function, GenericFunction):
        return True
    return (
        isinstance(function, Function)
        and function.packagenames in {(), ("pg_catalog",)}
        and function.name.lower() in pure
    )


def _has_more(part: Any) -> bool:
    """Say whether an element has something in it that is not among the parts of its statement."""
    if isinstance(part, Values | ScalarValues):
        cells = (cell for rows in part._data for row in rows for cell in row)  # noqa: SLF001
        return any(isinstance(c, ClauseElement) or hasattr(c, "__clause_element__") for c in cells)
    operator = getattr(part, "operator", None)
    if isinstance(operator, custom_op) and "(" in operator.opstring:
        return True
    return any(getattr(part, name, None) for name in _BESIDES)


def _may_call(text: str, pure: frozenset[str]) -> bool:
    """Say of a part of a SELECT, in SQL, that it may do more than compute."""
    brackets = [found.start() for found in re.finditer(r"\(", text)]
    if not brackets:
        return False
    if _NO_EXPRESSION.search(text):
        return True
    return any(_may_be_called(text[:bracket].rstrip(), pure) for bracket in brackets)


def _may_be_called(before: str, pure: frozenset[str]) -> bool:
    """Say of what stands before a bracket that it ends with the name of a function to beware of."""
    if not before or before[-1] in _SIGNS:
        return False
    found = _NAME.search(before)
    if found is None:  # a quoted name, or what nobody has thought of
        return True
    name = found.group().lower().removeprefix("pg_catalog.")
    if name in _KEYWORDS or name in pure:
        return False
    return not _NAMES_SOMETHING.search(before[: found.start()])
