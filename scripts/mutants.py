"""Mutation testing: put small faults into the code, and see whether the tests that belong to it notice.

    .venv/bin/python scripts/mutants.py --package control --show

Each file `tests/mutants/<package>.toml` names sources, the quick tests that belong to them, and how many mutants are
drawn (with a seed, so that the sample is the same again). It also lists the mutants that change nothing observable,
with the reason.

The operators are those of mutmut that make faults a person could make (another comparison, + for -, a number off by
one, a condition turned round), and some of our own: min for max, a factor or summand forgotten, a step skipped. Not
those that put None or text in the place of things: such mutants die of a TypeError and say nothing about tests.

mutmut's own runner copies the tree and mutates function by function. This one never writes a mutant to disk: a process
that has imported the libraries forks for each mutant, and an import hook hands out the mutated source.
"""

from __future__ import annotations

import argparse
import difflib
import doctest
import importlib
import importlib.abc
import importlib.util
import json
import os
import random
import signal
import sys
import time
import tomllib
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import libcst as cst
import libcst.matchers as m
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation import mutators

ROOT = Path(__file__).resolve().parent.parent
SOURCE, PACKAGES = ROOT / "src", ROOT / "tests" / "mutants"
LEAST_CAUGHT = 0.85
WARM = ("hypothesis", "networkx", "numpy", "pandas", "pydantic", "pyspark.sql", "pytest", "scipy.optimize", "sqlglot")
_TIMEOUT_FACTOR, _TIMEOUT_S = 4.0, 20.0
_SAY_EVERY_S = 15.0

# --- operators -------------------------------------------------------------------------------------------------------

_CALLS = {"min": "max", "max": "min", "sum": "max", "any": "all", "all": "any", "floor": "ceil", "ceil": "floor"}


def other_call(node: cst.Call) -> Iterable[cst.Call]:
    """`min` for `max`."""
    name = node.func if isinstance(node.func, cst.Name) else None
    if isinstance(node.func, cst.Attribute) and m.matches(node.func.value, m.Name("math")):
        name = node.func.attr
    if name is not None and name.value in _CALLS:
        # `max` of nothing raises where `sum` does not; that is a fault as good as any.
        yield node.with_deep_changes(name, value=_CALLS[name.value])


def forgotten_part(node: cst.BinaryOperation) -> Iterable[cst.BaseExpression]:
    """`a` for `a * b`, `a + b` or `a - b`."""
    if isinstance(node.operator, cst.Multiply | cst.Add | cst.Subtract | cst.Divide):
        kept = node.left
        yield kept if kept.lpar or not node.lpar else kept.with_changes(lpar=node.lpar, rpar=node.rpar)


def skipped_step(node: cst.SimpleStatementLine) -> Iterable[cst.SimpleStatementLine]:
    """`pass` for a call whose result nobody wants, for `x += 1`, `del x`, `x.y = z` and `x[y] = z`."""
    only = node.body[0] if len(node.body) == 1 else None
    is_call = isinstance(only, cst.Expr) and isinstance(only.value, cst.Call)
    is_store = isinstance(only, cst.Assign) and any(
        isinstance(target.target, cst.Attribute | cst.Subscript) for target in only.targets
    )
    if is_call or is_store or isinstance(only, cst.AugAssign | cst.Del):
        yield node.with_changes(body=[cst.Pass()])


def turned_condition(node: cst.If | cst.While) -> Iterable[cst.CSTNode]:
    """`if not a` for `if a`."""
    test = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    yield node.with_changes(test=cst.UnaryOperation(cst.Not(), test))


OPERATORS: Sequence[tuple[type, Callable[[Any], Iterable[cst.CSTNode]]]] = [
    (cst.BaseNumber, mutators.operator_number),
    (cst.Name, mutators.operator_name),
    (cst.UnaryOperation, mutators.operator_remove_unary_ops),
    (cst.CSTNode, mutators.operator_keywords),
    (cst.CSTNode, mutators.operator_swap_op),
    (cst.Match, mutators.operator_match),
    (cst.IfExp, mutators.operator_if_exp),
    (cst.Call, other_call),
    (cst.BinaryOperation, forgotten_part),
    (cst.SimpleStatementLine, skipped_step),
    (cst.If, turned_condition),
    (cst.While, turned_condition),
]

# --- mutants ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    """A fault in one place of a module."""

    path: Path
    line: int
    source: str

    @property
    def module(self) -> str:
        """The name of the module."""
        parts = self.path.relative_to(SOURCE).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def change(self) -> tuple[str, str]:
        """The lines that it replaces, and by what."""
        lines = difflib.ndiff(self.path.read_text().splitlines(), self.source.splitlines())
        changed = [line for line in lines if line[0] in "+-"]
        return tuple(" ".join(line[2:].strip() for line in changed if line[0] == sign) for sign in "-+")  # type: ignore[return-value]

    def __str__(self) -> str:
        before, after = self.change
        return f"{self.path.relative_to(ROOT)}:{self.line}\n    - {before}\n    + {after}"


class _Mutations(cst.CSTVisitor):
    """Collects all mutations of a module, but for those of texts, types and what is only said."""

    METADATA_DEPENDENCIES = (PositionProvider,)
    _PASSED_OVER = m.OneOf(
        m.Annotation(),
        m.Decorator(),
        m.Raise(),
        m.Assert(),
        m.Import(),
        m.ImportFrom(),
        m.FormattedString(),
        m.If(test=m.Name("TYPE_CHECKING")),
        m.Call(func=m.Attribute(value=m.Name("_LOG"))),
        m.Assign(targets=[m.AssignTarget(target=m.Name("__all__"))]),
        m.FunctionDef(name=m.Name("__repr__") | m.Name("__str__")),
    )

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[cst.CSTNode, cst.CSTNode, int]] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if m.matches(node, self._PASSED_OVER):
            return False
        for kind, operator in OPERATORS:
            if isinstance(node, kind):
                line = self.get_metadata(PositionProvider, node).start.line
                self.found += [(node, mutated, line) for mutated in operator(node)]
        return True


def mutants_of(path: Path) -> list[Callable[[], Mutant]]:
    """All mutants of a file, in the order of its lines; each is made when it is called for."""
    wrapper = MetadataWrapper(cst.parse_module(path.read_text()), unsafe_skip_copy=True)
    visitor = _Mutations()
    wrapper.visit(visitor)

    def made(node: cst.CSTNode, mutated: cst.CSTNode, line: int) -> Mutant:
        return Mutant(path, line, wrapper.module.deep_replace(node, mutated).code)  # type: ignore[arg-type]

    return [partial(made, *found) for found in sorted(visitor.found, key=lambda item: item[2])]


# --- packages --------------------------------------------------------------------------------------------------------


@dataclass
class Package:
    """Sources with the tests that belong to them; see `tests/mutants`."""

    name: str
    sources: list[str]
    tests: list[str]
    sample: int
    equivalent: list[dict[str, str]] = field(default_factory=list)

    def drawn(self, seed: int, count: int | None) -> list[Mutant]:
        """A sample of its mutants, by file and line."""
        paths = sorted({path for pattern in self.sources for path in ROOT.glob(pattern)})
        if not paths:
            raise SystemExit(f"tests/mutants/{self.name}.toml: no file is {self.sources}")
        every = [mutant for path in paths for mutant in mutants_of(path)]
        size = min(self.sample if count is None else count, len(every))
        chosen = random.Random(f"{seed}/{self.name}").sample(range(len(every)), size)
        return [every[i]() for i in sorted(chosen)]

    def reason(self, mutant: Mutant) -> str | None:
        """Why a mutant changes nothing observable, if it is listed so."""
        before, after = mutant.change
        for entry in self.equivalent:
            same = entry["before"] == before and entry["after"] == after
            if same and mutant.path.as_posix().endswith(entry["file"]):
                return entry["reason"]
        return None


def load_packages(names: Sequence[str]) -> list[Package]:
    """The packages with these names; all without any."""
    known = {path.stem: path for path in sorted(PACKAGES.glob("*.toml"))}
    for name in names:
        if name not in known:
            raise SystemExit(f"there is no package {name!r}; known: {', '.join(known)}")
    chosen = names or list(known)
    return [Package(name, **tomllib.loads(known[name].read_text())) for name in chosen]


# --- running ---------------------------------------------------------------------------------------------------------


class _Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Hands out the mutated source of one module."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, fullname: str, *_: object) -> Any:
        if fullname != self._mutant.module:
            return None
        is_package = self._mutant.path.name == "__init__.py"
        places = [str(self._mutant.path.parent)] if is_package else None
        return importlib.util.spec_from_file_location(
            fullname, self._mutant.path, loader=self, submodule_search_locations=places
        )

    def create_module(self, _: object) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        exec(compile(self._mutant.source, str(self._mutant.path), "exec"), module.__dict__)


def _passes(mutant: Mutant | None, tests: Sequence[str]) -> bool:
    """Whether doctests of the mutant's module and the tests pass; in a process of its own."""
    import pytest

    if mutant is not None:
        sys.meta_path.insert(0, _Mutated(mutant))
        sys.dont_write_bytecode = True
        try:
            module = importlib.import_module(mutant.module)
        except Exception:
            return False
        flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
        if doctest.testmod(module, optionflags=flags).failed:
            return False
    # Libraries were imported ahead of pytest, which would like to have rewritten their assertions.
    quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    options = ["-x", "-q", *quiet, "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"]
    return pytest.main([*options, *(str(ROOT / test) for test in tests)]) == pytest.ExitCode.OK


def _forked(mutant: Mutant | None, tests: Sequence[str], log: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.setsid()  # so that whatever it starts ends with it
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1), os.dup2(out, 2), os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(ROOT)
        status = 0 if _passes(mutant, tests) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _end(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def baseline(package: Package, scratch: Path) -> float:
    """How long its tests take without any fault; exits if they do not pass."""
    begin_s = time.monotonic()
    log = scratch / f"{package.name}.log"
    pid = _forked(None, package.tests, log)
    _, status = os.waitpid(pid, 0)
    _end(pid)
    if status != 0:
        raise SystemExit(f"the tests of {package.name} fail without any mutant:\n{log.read_text()[-4000:]}")
    return time.monotonic() - begin_s


def run(package: Package, mutants: Sequence[Mutant], jobs: int, scratch: Path, say: Callable[[str], None]) -> list[str]:
    """What becomes of each mutant: `caught`, `timeout` or `survived`."""
    took_s = baseline(package, scratch)
    say(f"{package.name}: {len(mutants)} mutants, tests take {took_s:.1f} s")
    limit_s = _TIMEOUT_FACTOR * took_s + _TIMEOUT_S
    results = [""] * len(mutants)
    running: dict[int, tuple[int, float]] = {}
    waiting = list(range(len(mutants)))[::-1]
    said_s = time.monotonic()
    while waiting or running:
        if time.monotonic() > said_s + _SAY_EVERY_S:
            said_s = time.monotonic()
            say(f"  {len(mutants) - len(waiting) - len(running)} of {len(mutants)}")
        while waiting and len(running) < jobs:
            i = waiting.pop()
            running[_forked(mutants[i], package.tests, scratch / f"{package.name}-{i}.log")] = (i, time.monotonic())
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            results[running.pop(pid)[0]] = "caught" if status else "survived"
            _end(pid)
        for late, (i, begin_s) in list(running.items()):
            if time.monotonic() - begin_s > limit_s:
                _end(late)
                os.waitpid(late, 0)
                del running[late]
                results[i] = "timeout"
        if not pid:
            time.sleep(0.01)
    return results


def summary(package: Package, mutants: Sequence[Mutant], results: Sequence[str]) -> dict[str, Any]:
    """Numbers, and the mutants that survived."""
    left = [mutant for mutant, result in zip(mutants, results, strict=True) if result == "survived"]
    reasons = {mutant: package.reason(mutant) for mutant in left}
    survivors = [mutant for mutant in left if reasons[mutant] is None]
    equivalent = [(mutant, reason) for mutant, reason in reasons.items() if reason is not None]
    return {
        "package": package.name,
        "mutants": len(mutants),
        "caught": len(mutants) - len(left),
        "equivalent": [{"mutant": _told(mutant), "reason": reason} for mutant, reason in equivalent],
        "survived": [_told(mutant) for mutant in survivors],
        "share": 1 - len(survivors) / max(len(mutants) - len(equivalent), 1),
    }


def _told(mutant: Mutant) -> dict[str, Any]:
    before, after = mutant.change
    return {"file": str(mutant.path.relative_to(ROOT)), "line": mutant.line, "before": before, "after": after}


def markdown(found: Sequence[dict[str, Any]], seed: int) -> str:
    """The table for the documentation, with the mutants that change nothing and those that nothing noticed."""
    lines = [
        "# Mutants",
        "",
        "Small faults put into the code, and whether the quick tests that belong to it notice. Generated by",
        f'`make mutants ARGS="--seed {seed} --markdown docs/mutants.md"`; what it does is in `scripts/mutants.py`.',
        "",
        "| package | mutants | caught | change nothing | survived | share caught |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for row in found:
        figures = (row["mutants"], row["caught"], len(row["equivalent"]), len(row["survived"]), f"{row['share']:.1%}")
        lines.append(f"| {row['package']} | {' | '.join(map(str, figures))} |")
    total, caught = sum(row["mutants"] for row in found), sum(row["caught"] for row in found)
    same, left = (sum(len(row[key]) for row in found) for key in ("equivalent", "survived"))
    lines.append(f"| all | {total} | {caught} | {same} | {left} | {caught / max(total - same, 1):.1%} |")
    lines += ["", "## Change nothing", "", "| where | is | becomes | why nothing changes |", "|---|---|---|---|"]
    for row in found:
        for entry in row["equivalent"]:
            lines.append(f"| {_place(entry['mutant'])} | {_change(entry['mutant'])} | {entry['reason']} |")
    lines += ["", "## Survived", "", "| where | is | becomes |", "|---|---|---|"]
    lines += [f"| {_place(one)} | {_change(one)} |" for row in found for one in row["survived"]]
    return "\n".join(lines) + "\n"


def _place(mutant: dict[str, Any]) -> str:
    return f"{mutant['file'].removeprefix('src/streamshed/')}:{mutant['line']}"


def _change(mutant: dict[str, Any]) -> str:
    return " | ".join(f"`{mutant[key].replace('|', chr(92) + '|')}`" for key in ("before", "after"))


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Put small faults into the code, and see whether tests notice.")
    parser.add_argument("--package", "-p", action="append", default=[], help="only this one; repeatable")
    parser.add_argument("--seed", type=int, default=1, help="of the sample (default: 1)")
    parser.add_argument("--count", type=int, help="mutants per package (default: as its file says)")
    parser.add_argument("--file", help="only mutants of source files whose path contains this")
    parser.add_argument("--jobs", "-j", type=int, default=os.cpu_count() or 1, help="processes (default: cores)")
    parser.add_argument("--show", action="store_true", help="print the mutants that survived")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write them as a page of the documentation")
    options = parser.parse_args()
    for name in WARM:
        importlib.import_module(name)
    scratch = Path(os.environ.get("TMPDIR", "/tmp")) / f"streamshed-mutants-{os.getpid()}"
    scratch.mkdir(parents=True)
    found: list[dict[str, Any]] = []
    for package in load_packages(options.package):
        if options.file:
            package.sources = [
                str(path.relative_to(ROOT))
                for pattern in package.sources
                for path in ROOT.glob(pattern)
                if options.file in str(path)
            ]
        mutants = package.drawn(options.seed, options.count)
        results = run(package, mutants, options.jobs, scratch, lambda text: print(text, flush=True))
        found.append(summary(package, mutants, results))
        print(f"  {found[-1]['share']:.1%} caught", flush=True)
        if options.show:
            for one, result in zip(mutants, results, strict=True):
                if result == "survived" and package.reason(one) is None:
                    print(f"survived  {one}")
    print(f"\n{'package':<16}{'mutants':>8}{'caught':>8}{'no change':>11}{'survived':>10}{'share':>8}")
    for row in found:
        print(
            f"{row['package']:<16}{row['mutants']:>8}{row['caught']:>8}{len(row['equivalent']):>11}"
            f"{len(row['survived']):>10}{row['share']:>8.1%}"
        )
    if options.json:
        options.json.write_text(json.dumps({"seed": options.seed, "packages": found}, indent=1) + "\n")
    if options.markdown:
        options.markdown.write_text(markdown(found, options.seed))
    low = [row["package"] for row in found if row["share"] < LEAST_CAUGHT]
    if low:
        print(f"below {LEAST_CAUGHT:.0%}: {', '.join(low)}")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
