"""Plant a bug: one pattern in one function of the product is replaced before its module is
imported."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final

from dledger.errors import ConfigError

SIMULATOR: Final = "sim"
ROCKETMQ: Final = "sim rocketmq"
"""The simulator, with seeds whose groups keep a RocketMQ commit log, as some of all seeds do."""
CONSUMERS: Final = "sim consumers"
"""The simulator, with seeds whose clients have consumers, as some of all seeds do."""
SIMULATED: Final = frozenset({SIMULATOR, ROCKETMQ, CONSUMERS})
CRASH_STATES: Final = "crash states"
"""The enumeration of `verification.disk_states`."""
SCHEDULES: Final = "schedules"
"""The campaign of `verification.interleave`."""
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A planted bug.

    Attributes:
        name: short, unique.
        stands_for: the deviations and bug classes that it belongs to, as ``D5 B13``.
        module: below ``dledger``, as ``raft.core``.
        function: its qualified name in the module, as ``Core.hard_state``; empty for all of the
            module.
        pattern: the text that stands there, exactly once in that function; lines are separated as
            in the source.
        replacement: the text that stands there instead.
        why: the failure that it causes, in a line.
        catcher: the check that has to find it: `SIMULATOR`, `ROCKETMQ`, `CONSUMERS`,
            `CRASH_STATES`, `SCHEDULES`, or paths of tests where none of these can make the
            difference show.
        planted_blind: it was written before the tests of its package were looked at.
    """

    name: str
    stands_for: str
    module: str
    function: str
    pattern: str
    replacement: str
    why: str
    catcher: str = SIMULATOR
    planted_blind: bool = False


def source_of(module: str) -> str:
    """The source of ``dledger.<module>``, without importing it."""
    spec = importlib.util.find_spec("dledger")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    (folder,) = spec.submodule_search_locations
    return Path(folder, *module.split(".")).with_suffix(".py").read_text()


def mutated(mutant: Mutant) -> str:
    """The module's source with the bug in it.

    Raises:
        ConfigError: the function is not there, or the pattern does not stand in it exactly once.
    """
    source = source_of(mutant.module)
    lines = source.splitlines(keepends=True)
    first, last = _lines_of(ast.parse(source), mutant)
    body = "".join(lines[first - 1 : last])
    if body.count(mutant.pattern) != 1:
        raise ConfigError(
            f"mutant {mutant.name}: {mutant.pattern!r} stands {body.count(mutant.pattern)} times "
            f"in "
            f"dledger.{mutant.module}.{mutant.function}, not once: mend the registry"
        )
    return "".join(
        [*lines[: first - 1], body.replace(mutant.pattern, mutant.replacement), *lines[last:]]
    )


def _lines_of(tree: ast.Module, mutant: Mutant) -> tuple[int, int]:
    """First and last line of the function."""
    body: Sequence[ast.stmt] = tree.body
    first, last = 1, tree.body[-1].end_lineno or 1
    for name in filter(None, mutant.function.split(".")):
        found = [node for node in body if isinstance(node, _NAMED) and node.name == name]
        if not found:
            raise ConfigError(
                f"mutant {mutant.name}: dledger.{mutant.module} has no {mutant.function}"
            )
        one = found[-1]  # behind its overloads
        first, last, body = one.lineno, one.end_lineno or first, one.body
    return first, last


class _Planter(MetaPathFinder, Loader):
    def __init__(self, mutant: Mutant) -> None:
        self._name = f"dledger.{mutant.module}"
        self._code = compile(mutated(mutant), f"<{mutant.name} in {self._name}>", "exec")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname == self._name else None

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, module.__dict__)


def plant(mutant: Mutant) -> None:
    """From now on the module is imported with the bug.

    Raises:
        ConfigError: it was imported already, or see `mutated`.
    """
    if f"dledger.{mutant.module}" in sys.modules:
        raise ConfigError(
            f"dledger.{mutant.module} is imported already: plant {mutant.name} in a new process"
        )
    sys.meta_path.insert(0, _Planter(mutant))
