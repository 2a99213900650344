"""Reading Spark SQL expressions: which columns they use, and which values of one column a predicate lets pass."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from streamshed.errors import NetworkError

_COMPARISONS: dict[type[exp.Expr], Callable[[float, float], bool]] = {
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
}
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
}


@lru_cache(maxsize=65536)
def parse(sql: str, where: str) -> exp.Expr:
    """The syntax tree of a Spark SQL expression."""
    try:
        tree = sqlglot.parse_one(sql, dialect="spark")
    except SqlglotError as error:
        detail = str(error)
        if isinstance(error, ParseError) and error.errors:
            # "… missing for <class 'sqlglot.expressions.core.GT'>": the class says nothing to the writer of the SQL.
            detail = str(error.errors[0]["description"]).partition(" for <class")[0]
        raise _not_an_expression(sql, where, detail) from None
    if not isinstance(tree, exp.Condition | exp.Interval):
        # sqlglot reads "a b" as an alias, "a; b" and "select 1" as statements.
        raise _not_an_expression(sql, where, f"it reads as {type(tree).__name__.lower()}")
    return tree


def _not_an_expression(sql: str, where: str, hint: str) -> NetworkError:
    return NetworkError(
        "not a Spark SQL expression", where=where, got=repr(sql), expected="one expression over columns", hint=hint
    )


def columns_used(sql: str, where: str) -> tuple[str, ...]:
    """The columns that an expression reads, each once, in order of appearance.

    >>> columns_used("speed > 10 AND lower(lane) = 'x'", "here")
    ('speed', 'lane')
    """
    tree = parse(sql, where)
    columns = (column.parts[0].name for column in tree.find_all(exp.Column, bfs=False))
    return tuple(dict.fromkeys(columns))


def renamed_column(sql: str, where: str) -> str | None:
    """The column that an expression passes on unchanged, or None if it computes something."""
    tree = parse(sql, where)
    return tree.name if isinstance(tree, exp.Column) and len(tree.parts) == 1 else None


class RangeTest:
    """A predicate as a test on the values of a single numeric column, with the constants where it changes.

    >>> test = RangeTest.of("value > 10 AND value <= 20", "value")
    >>> test.cuts, test(10), test(15), test(20), test(25)
    ((10.0, 20.0), False, True, True, False)
    >>> RangeTest.of("other > 1", "value") is None
    True
    """

    def __init__(self, cuts: tuple[float, ...], test: Callable[[float], bool]) -> None:
        self.cuts = cuts
        self._test = test

    def __call__(self, value: float) -> bool:
        return self._test(value)

    @classmethod
    def of(cls, sql: str, column: str, where: str = "predicate") -> RangeTest | None:
        """Read a predicate; None if it says anything but comparisons of this column with numbers."""
        return _range_test(sql, column, where)


@lru_cache(maxsize=65536)
def _range_test(sql: str, column: str, where: str) -> RangeTest | None:
    cuts: list[float] = []
    test = _compile(parse(sql, where), column, cuts)
    return RangeTest(tuple(sorted(set(cuts))), test) if test is not None else None


def _compile(tree: exp.Expr, column: str, cuts: list[float]) -> Callable[[float], bool] | None:
    if isinstance(tree, exp.Paren):
        return _compile(tree.this, column, cuts)
    if isinstance(tree, exp.Boolean):
        constant = bool(tree.this)
        return lambda _value: constant
    if isinstance(tree, exp.Not):
        inner = _compile(tree.this, column, cuts)
        return None if inner is None else lambda value: not inner(value)
    if isinstance(tree, exp.And | exp.Or):
        left, right = _compile(tree.left, column, cuts), _compile(tree.right, column, cuts)
        if left is None or right is None:
            return None
        if isinstance(tree, exp.And):
            return lambda value: left(value) and right(value)
        return lambda value: left(value) or right(value)
    if isinstance(tree, exp.Between):
        low, high = _number(tree.args["low"]), _number(tree.args["high"])
        if low is None or high is None or not _is_column(tree.this, column):
            return None
        cuts.extend((low, high))
        return lambda value: low <= value <= high
    if type(tree) in _COMPARISONS:
        kind: type[exp.Expr] = type(tree)
        left_side, right_side = tree.this, tree.expression
        if _is_column(right_side, column):
            left_side, right_side, kind = right_side, left_side, _MIRRORED[kind]
        constant_value = _number(right_side)
        if constant_value is None or not _is_column(left_side, column):
            return None
        compare = _COMPARISONS[kind]
        cuts.append(constant_value)
        return lambda value: compare(value, constant_value)
    return None


def _is_column(tree: exp.Expr, column: str) -> bool:
    return isinstance(tree, exp.Column) and len(tree.parts) == 1 and tree.name == column


def _number(tree: exp.Expr) -> float | None:
    if isinstance(tree, exp.Neg):
        inner = _number(tree.this)
        return None if inner is None else -inner
    if isinstance(tree, exp.Literal) and not tree.is_string:
        return float(tree.this)
    return None
