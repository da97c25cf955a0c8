"""The structure of the code, checked: imports point down, files stay short, nothing is ambient.

Each rule is a function from a source tree to its problems, one line each: what is wrong, where, and
why it is a rule. The lower half shows that each rule catches what it is for.
"""

import ast
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pytest

PROJECT = pathlib.Path(__file__).parents[1]
FOLDERS = ("src", "tests", "examples", "tools", "benchmarks")

# The packages and top-level modules of tilewright, by rank: each imports what is below it. The
# layout is explained in docs/architecture.md.
LAYERS = (
    ("base",),
    ("program",),
    ("ir", "runtime"),
    ("ir.text", "ir.verify"),
    ("ir.python",),
    ("target", "ops"),
    ("analyze", "targets"),
    ("frontends", "lower", "schedule.trace"),
    ("frontends.onnx", "schedule.core", "backends.native", "backends.host"),
    ("schedule.primitives",),
    ("schedule.match",),
    ("schedule",),
    ("backends.stream",),
    ("plan",),
    ("optimize", "sim"),
    ("backends.bundles", "explain"),
    ("chip_kernel", "options"),
    ("passed_arrays", "resident_arrays"),
    ("build_pieces", "form_tiles", "share_cores"),
    ("bundle_forms", "join_pieces"),
    ("chip", "check"),
    ("backends", "compiled"),
    ("assemble", "offers", "specialize"),
    ("compile_cache", "submissions"),
    ("side_by_side",),
    ("compiler", "kernels"),
    ("onnx_backend", "quantization", "report"),
    ("cli",),
    ("__init__", "__main__"),
)
RANK = {part: rank for rank, parts in enumerate(LAYERS) for part in parts}

READS_ENVIRONMENT = {"cli.main", "runtime.cache"}  # results do not depend on what is kept

# Who may run programs, not only make them. A simulator is a device.
USES_RUNTIME = {"backends", "kernels", "chip", "check", "compiler", "compiled", "specialize"}
USES_RUNTIME |= {"backends.native", "backends.stream", "cli", "sim", "onnx_backend"}
USES_RUNTIME |= {"report", "__init__", "assemble", "compile_cache", "side_by_side", "submissions"}
USES_RUNTIME |= {"quantization"}

# Who may import by name, from a table: public names, and kinds of devices.
BY_NAME = {"__init__", "backends.table"}

MAX_FILE, MAX_FUNCTION, MAX_COLUMNS = 600, 80, 100
MAX_DESCRIPTION = 160  # of a chip: one function by nature, a list of facts
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
CODE_LOADERS = {
    "pickle",
    "_pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "joblib",
    "marshal",
    "shelve",
}
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}


# ---- the source tree --------------------------------------------------------------------------


@dataclass(frozen=True)
class Module:
    """One of our modules: `ir.text` for tilewright/ir/text.py, `ir` for a package's __init__."""

    name: str
    path: pathlib.Path
    tree: ast.Module

    @property
    def part(self) -> str:
        """The package with a rank that it lies in, or the top-level module that it is."""
        return part_of(self.name)

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


def part_of(name: str) -> str:
    """`ir.text` of `ir.text.loop`, `ir` of `ir.loop`."""
    parts = name.split(".")
    inner = ".".join(parts[:2])
    return inner if inner in RANK and len(parts) > 2 else parts[0]


@cache
def parse(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def modules(project: pathlib.Path) -> dict[str, Module]:
    package = project / "src" / "tilewright"
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)
        found[name] = Module(name, path, parse(path))
    return found


def own_imports(module: Module, tree: ast.AST, known: dict[str, Module]) -> Iterator[str]:
    """The names of our modules that this part of a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = absolute_origin(module, node)
            names = [f"{origin}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "tilewright":
                yield longest_known(name.split(".")[1:], known)


def absolute_origin(module: Module, node: ast.ImportFrom) -> str:
    """`from ..ir import text` in tilewright.lower.storage: tilewright.ir."""
    if node.level == 0:
        return node.module or ""
    here = ["tilewright", *module.name.split(".")] + (["__init__"] if module.is_package else [])
    return ".".join([*here[: -node.level], *([node.module] if node.module else [])])


def longest_known(parts: list[str], known: dict[str, Module]) -> str:
    """`ir.text.Printer` names the module `ir.text`; a public name comes from the top `__init__`.

    A module that is not there keeps its name, so that its rank is checked all the same.
    """
    for end in range(len(parts), 0, -1):
        if ".".join(parts[:end]) in known:
            return ".".join(parts[:end])
    return parts[0] if parts and parts[0] in RANK else "__init__"


def where(module: Module, node: ast.AST) -> str:
    depth = module.name.count(".") + (module.is_package and module.name != "__init__")
    return f"tilewright/{'/'.join(module.path.parts[-1 - depth :])}:{node.lineno}"


# ---- the rules --------------------------------------------------------------------------------


def unranked(project: pathlib.Path) -> Iterator[str]:
    for part in sorted({m.part for m in modules(project).values()} - set(RANK)):
        yield f"tilewright.{part} has no rank: put it in LAYERS, in tests/test_structure.py"


def imports_that_point_up(project: pathlib.Path) -> Iterator[str]:
    known = modules(project)
    for module in known.values():
        here = module.part
        for target in sorted(set(own_imports(module, module.tree, known))):
            there = part_of(target)
            if there == here or here not in RANK or there not in RANK:
                continue
            if RANK[there] >= RANK[here]:
                yield (
                    f"{module.name} may not import {target}: {there} (rank {RANK[there]}) is not "
                    f"below {here} (rank {RANK[here]}); move what you need down, or pass it in"
                )
            elif there == "runtime" and here not in USES_RUNTIME:
                yield (
                    f"{module.name} may not import {target}: the compiler makes programs and does "
                    f"not run them; let {', '.join(sorted(USES_RUNTIME))} do it"
                )


def import_cycles(project: pathlib.Path) -> Iterator[str]:
    """Those for types too: what two modules know of each other belongs below both."""
    known = modules(project)
    graph = {
        name: sorted(set(own_imports(module, module.tree, known)))
        for name, module in known.items()
        if name != "__init__"
    }
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> Iterator[str]:
        if name in path:
            cycle = [*path[path.index(name) :], name]
            yield f"import cycle: {' -> '.join(cycle)}; move what both need to a module below"
        elif name not in done:
            for target in graph.get(name, ()):
                if target != name:
                    yield from visit(target, (*path, name))
            done.add(name)

    for name in graph:
        yield from visit(name, ())


def hidden_imports(project: pathlib.Path) -> Iterator[str]:
    known = modules(project)
    for module in known.values():
        for function in ast.walk(module.tree):
            if isinstance(function, FUNCTIONS):
                for target in own_imports(module, function, known):
                    yield (
                        f"{where(module, function)}: imports {target} inside a function, which "
                        "hides a cycle; import it at the top, or pass it in"
                    )


def imports_by_name(project: pathlib.Path) -> Iterator[str]:
    for module in modules(project).values():
        for node in ast.walk(module.tree):
            called = getattr(node, "func", None)
            name = getattr(called, "attr", getattr(called, "id", ""))
            if name in ("import_module", "__import__") and module.name not in BY_NAME:
                yield (
                    f"{where(module, node)}: imports by name, which no rule here sees; only the "
                    "tables of public names and of kinds of devices do"
                )


def packages_that_do_something(project: pathlib.Path) -> Iterator[str]:
    known = modules(project)
    for folder in sorted({module.path.parent for module in known.values()}):
        if not (folder / "__init__.py").exists():
            yield f"{folder.relative_to(project)} has no __init__.py: the wheel would leave it out"
    for module in known.values():
        if module.is_package and module.name != "__init__":
            for node in module.tree.body:
                if isinstance(node, ast.Import | ast.ImportFrom):
                    yield (
                        f"{where(module, node)}: only the top __init__ imports anything; a package "
                        "that imports its modules makes all who use one depend on all"
                    )


def files(project: pathlib.Path, *endings: str) -> list[pathlib.Path]:
    found = (p for folder in FOLDERS for p in (project / folder).rglob("*") if p.suffix in endings)
    return sorted(found)


def too_long(project: pathlib.Path) -> Iterator[str]:
    for path in files(project, ".py", ".c", ".h"):
        name, lines = path.relative_to(project), path.read_text(encoding="utf-8").splitlines()
        if len(lines) > MAX_FILE:
            yield f"{name}: {len(lines)} lines, more than {MAX_FILE}; split it by concept"
        for number, line in enumerate(lines, 1):
            if len(line) > MAX_COLUMNS:
                yield f"{name}:{number}: {len(line)} columns, more than {MAX_COLUMNS}"
    for path in files(project, ".py"):
        for node in ast.walk(parse(path)):
            size = node.end_lineno - node.lineno + 1 if isinstance(node, FUNCTIONS) else 0
            most = MAX_DESCRIPTION if is_description(path, node) else MAX_FUNCTION
            if size > most:
                yield (
                    f"{path.relative_to(project)}:{node.lineno}: a function of {size} lines, more "
                    f"than {most}; give its parts names"
                )


def is_description(path: pathlib.Path, node: ast.AST) -> bool:
    """`def chip(…) -> Target` in targets/."""
    returns = getattr(node, "returns", None)
    return path.parent.name == "targets" and getattr(returns, "id", "") == "Target"


def is_target_name(node: ast.AST) -> bool:
    """`target.name`, `self.target.name`, `host_target.name`, and so on."""
    if not (isinstance(node, ast.Attribute) and node.attr == "name"):
        return False
    owner = getattr(node.value, "id", getattr(node.value, "attr", ""))
    return owner.lower() == "target" or owner.lower().endswith("_target")


def asks_for_target_name(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        return any(map(is_target_name, [node.left, *node.comparators]))
    if isinstance(node, ast.Match):
        return is_target_name(node.subject)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return is_target_name(node.func.value)  # target.name.startswith(...)
    return False


def target_names(project: pathlib.Path) -> Iterator[str]:
    for module in modules(project).values():
        for node in ast.walk(module.tree):
            if asks_for_target_name(node):
                yield (
                    f"{where(module, node)}: depends on a target's name; ask for the fact you need "
                    "(a memory's size, an instruction), so that it holds for chips not yet made"
                )


def reads_environment(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return (
            isinstance(node.value, ast.Name) and node.value.id == "os" and node.attr in ENVIRONMENT
        )
    if isinstance(node, ast.ImportFrom):
        return node.module == "os" and any(alias.name in ENVIRONMENT for alias in node.names)
    return False


def ambient_state(project: pathlib.Path) -> Iterator[str]:
    for module in modules(project).values():
        for node in ast.walk(module.tree):
            if reads_environment(node) and module.name not in READS_ENVIRONMENT:
                yield (
                    f"{where(module, node)}: reads the environment; only cli/main.py does, and "
                    "passes on what it finds, so that results depend on arguments alone (and "
                    "runtime/cache.py, on which none depends)"
                )


def loads_code(node: ast.AST) -> str | None:
    names = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.level == 0:
        names = [node.module]
    elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
        is_off = isinstance(node.value, ast.Constant) and node.value.value is False
        return None if is_off else "allow_pickle"
    return next((name for name in names if name.split(".")[0] in CODE_LOADERS), None)


def code_in_data(project: pathlib.Path) -> Iterator[str]:
    for module in modules(project).values():
        for node in ast.walk(module.tree):
            if name := loads_code(node):
                yield f"{where(module, node)}: {name}: no file that we load may run code"


def imported(node: ast.AST) -> list[str]:
    """Modules that a statement names, or a call that imports by name does."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    called = getattr(node, "func", None)
    if getattr(called, "attr", getattr(called, "id", "")) != "import_module":
        return []
    return [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]


def imports_of_tests(project: pathlib.Path) -> Iterator[str]:
    """Of all that lies in tests/ only tests/support is for others."""
    tests = {p.stem for p in (project / "tests").rglob("*.py") if "support" not in p.parts}
    for path in files(project, ".py"):
        for node in ast.walk(parse(path)):
            for name in imported(node):
                if name in tests or str(name).startswith(("test_", "tests.")):
                    yield (
                        f"{path.relative_to(project)}:{node.lineno}: imports {name}: what several "
                        "tests or tools use goes to tests/support"
                    )


RULES = (
    unranked,
    imports_that_point_up,
    import_cycles,
    hidden_imports,
    imports_by_name,
    packages_that_do_something,
    too_long,
    target_names,
    ambient_state,
    code_in_data,
    imports_of_tests,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_structure(rule):
    problems = list(rule(PROJECT))
    if problems:
        pytest.fail("\n".join([f"{len(problems)} found:", *problems]), pytrace=False)


def test_every_rank_is_of_something_that_there_is():
    known = modules(PROJECT)
    assert [part for part in RANK if part not in known] == []


# ---- each rule catches what it is for -----------------------------------------------------------


def project_of(folder: pathlib.Path, sources: dict[str, str]) -> pathlib.Path:
    """A project of these modules, with the __init__ files they need; tests and tools are beside."""
    for name, text in sources.items():
        path = folder / ("" if name.startswith(("tests", "tools")) else "src/tilewright") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for package in [path.parent, *path.parent.parents]:
            if package.is_relative_to(folder / "src" / "tilewright"):
                (package / "__init__.py").touch()
    return folder


CAUGHT = [
    (unranked, {"magic/a.py": ""}, ["tilewright.magic has no rank"]),
    (
        imports_that_point_up,
        {"ir/a.py": "from tilewright.lower import storage", "lower/storage.py": ""},
        ["ir.a may not import lower.storage: lower (rank 7) is not below ir (rank 2)"],
    ),
    (
        imports_that_point_up,
        {
            "ir/a.py": "import tilewright.ops.b\n"
            "from ..runtime import c\n"
            "from tilewright import Module"
        },
        [
            "ir.a may not import __init__",
            "ir.a may not import ops",
            "ir.a may not import runtime: runtime (rank 2) is not below ir (rank 2)",
        ],
    ),
    (
        imports_that_point_up,
        {"lower/a.py": "from tilewright.runtime.pool import x", "runtime/pool.py": ""},
        ["lower.a may not import runtime.pool: the compiler makes programs"],
    ),
    (
        imports_that_point_up,
        {
            "cli.py": "from tilewright import compiler",
            "compiler.py": "from tilewright.runtime import pool\nfrom tilewright.base import node",
            "base/node.py": "from tilewright.base import errors",
            "__init__.py": "from tilewright.compiler import compile",
            "onnx_backend.py": "from tilewright import compiler, runtime",
        },
        [],
    ),
    (
        import_cycles,
        {
            "ir/a.py": "from tilewright.ir import b",
            "ir/b.py": "from tilewright.ir.c import X",
            "ir/c.py": "from . import a\nif TYPE_CHECKING:\n    from tilewright.ir import d",
            "ir/d.py": "from tilewright.ir import c",
        },
        ["import cycle: ir.a -> ir.b -> ir.c -> ir.a;", "import cycle: ir.c -> ir.d -> ir.c;"],
    ),
    (
        hidden_imports,
        {"ir/a.py": "def f():\n    from tilewright.base import node\n    import math"},
        ["tilewright/ir/a.py:1: imports base inside a function"],
    ),
    (
        imports_by_name,
        {
            "ir/a.py": "import importlib\nimportlib.import_module('x')\n__import__('y')",
            "__init__.py": "import importlib\nimportlib.import_module('x')",
        },
        [f"tilewright/ir/a.py:{n}: imports by name" for n in (2, 3)],
    ),
    (
        packages_that_do_something,
        {"ir/__init__.py": "from tilewright.ir import a", "__init__.py": "import tilewright.ir.a"},
        ["tilewright/ir/__init__.py:1: only the top __init__ imports anything"],
    ),
    (
        too_long,
        {"ir/a.py": "x = 1\n" * 601, "ir/b.py": "def f():\n" + "    1\n" * 80 + "# " + "x" * 99},
        [
            "src/tilewright/ir/a.py: 601 lines, more than 600",
            "src/tilewright/ir/b.py:82: 101 columns, more than 100",
            "src/tilewright/ir/b.py:1: a function of 81 lines, more than 80",
        ],
    ),
    (
        target_names,
        {
            "lower/a.py": "if self.target.name == 'cuda': pass\n"
            "x = host_target.name in NAMES\n"
            "y = target.name.startswith('vta')\n"
            "z = buffer.name == target.memory.name\n"
            "print(target.name, TARGETS[target.name])"
        },
        [f"tilewright/lower/a.py:{n}: depends on a target's name" for n in (1, 2, 3)],
    ),
    (
        ambient_state,
        {
            "cli/main.py": "import os\nos.environ",
            "ir/a.py": "from os import path, getenv\nos.environ['X']",
        },
        [f"tilewright/ir/a.py:{n}: reads the environment" for n in (1, 2)],
    ),
    (
        code_in_data,
        {
            "ir/a.py": "import numpy, pickle\nfrom dill import loads\n"
            "load(f, allow_pickle=x)\nload(f, allow_pickle=False)"
        },
        [f"tilewright/ir/a.py:{n}: " for n in (1, 2, 3)],
    ),
    (
        imports_of_tests,
        {
            "tests/ir/test_a.py": "import helper, cases\nfrom other import X",
            "tests/other.py": "",
            "tests/support/cases.py": "",
            "tools/b.py": "import_module(f'test_{name}')\nfrom cases import X\nimport tests.ir",
        },
        [
            "tests/ir/test_a.py:2: imports other: what several tests or tools use",
            "tools/b.py:1: imports test_: what",
            "tools/b.py:3: imports tests.ir: what",
        ],
    ),
]


@pytest.mark.parametrize("rule, sources, problems", CAUGHT)
def test_rule(tmp_path, rule, sources, problems):
    found = list(rule(project_of(tmp_path, sources)))
    assert len(found) == len(problems), found
    for text, start in zip(sorted(found), sorted(problems), strict=True):
        assert text.startswith(start)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_empty_project_has_no_problems(tmp_path, rule):
    assert list(rule(tmp_path)) == []
