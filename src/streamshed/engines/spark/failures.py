"""What Spark says when something goes wrong, without the traces of two languages around it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql.streaming import StreamingQuery

from streamshed.errors import StreamshedError

_MOST_LINES = 6
_TRACE = re.compile(r'^\s*(at \S+\(.*\)|\.\.\. \d+ more|File ".*", line \d+.*|\^+|~*\^+~*)\s*$')
_HEADINGS = ("Traceback (most recent call last):", "Driver stacktrace:", "JVM stacktrace:", "== SQL")


class SparkFailure(StreamshedError, RuntimeError):
    """Spark could not do what it was asked to do."""


def first_lines(message: str, most: int = _MOST_LINES) -> str:
    r"""What a message of Spark says, without stack traces.

    A failure in a Python worker comes as a trace inside a trace. Its last line says what happened, so that line and
    what follows it come first; what Spark says around it is only that a task has failed.

    >>> print(first_lines("Job aborted\n  at a.b.C.run(C.scala:7)\nCaused by: no such file"))
    Job aborted
    Caused by: no such file
    """
    lines = message.strip().splitlines()
    start = max((i for i, line in enumerate(lines) if line.rstrip().endswith(_HEADINGS[0])), default=None)
    if start is not None:
        inside = start + 1
        while inside < len(lines) and (lines[inside].startswith("  ") or not lines[inside].strip()):
            inside += 1
        lines = lines[inside:]
    told = [
        line.rstrip()
        for line in lines
        if line.strip() and not _TRACE.match(line) and not line.strip().startswith(_HEADINGS)
    ]
    return "\n".join(told[:most])


def query_failure(query: StreamingQuery, what: str) -> SparkFailure | None:
    """Why a query has died; None if it runs, or was stopped.

    Args:
        query: the query.
        what: it computes, for people.
    """
    error = query.exception()
    if error is None:
        return None
    return SparkFailure(
        "the query died", where=f"{what}, query {query.name or query.id}", got=_indented(first_lines(_text(error)))
    )


@contextmanager
def explained(what: str, where: str, hint: str | None = None) -> Iterator[None]:
    """Turn what Spark raises in the block into an error that a user understands."""
    try:
        yield
    except StreamshedError:
        raise
    except (PySparkException, Py4JError) as error:
        raise SparkFailure(what, where=where, got=_indented(first_lines(_text(error))), hint=hint) from error


def _text(error: Exception) -> str:
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.getMessage() or error.java_exception.toString())
    return str(error)


def _indented(text: str) -> str:
    """Under the first line of an error's part."""
    return text.replace("\n", "\n" + " " * 12)
