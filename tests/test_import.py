"""What an import brings in: `import tilewright` is for programs that run models, and the compiler
comes with the first use of what needs it. No times here: modules are counted."""

import pkgutil
import subprocess
import sys

import pytest

import tilewright

REPORT = """
import sys
ours = [name for name in sys.modules if name.split(".")[0] == "tilewright"]
files = {name: str(getattr(module, "__file__", "")) for name, module in sys.modules.items()}
third = {name.split(".")[0] for name, file in files.items() if "site-packages" in file}
print(" ".join(third - {"_distutils_hack"}))
print(" ".join(ours))
"""


def imported(statements):
    """The packages of others, and our modules, that are there after these statements."""
    command = [sys.executable, "-c", f"{statements}\n{REPORT}"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    third, ours = found.splitlines()
    return set(third.split()), set(ours.split())


@pytest.fixture(scope="module")
def at_first():
    return imported("import tilewright")


RUNS_MODELS = {"numpy", "ml_dtypes", "llvmlite"}
RUNS_MODELS |= {"typing_extensions"} if sys.version_info < (3, 11) else set()


def test_import_brings_what_runs_models(at_first):
    third, ours = at_first
    assert third <= RUNS_MODELS
    assert len(ours) <= 105  # packages included
    packages = {name.split(".")[1] for name in ours if "." in name}
    wanted = {"base", "program", "ir", "ops", "runtime", "target", "backends"}
    wanted |= {"compiled", "options"}
    assert packages == wanted


def test_load_brings_nothing_more(at_first):
    assert imported("import tilewright; tilewright.load, tilewright.Module") == at_first


def test_compile_brings_the_compiler_and_no_chips():
    third, ours = imported("import tilewright; tilewright.compile")
    assert third <= RUNS_MODELS | {"onnx", "google", "islpy", "typing_extensions"}
    assert "tilewright.compiler" in ours
    for package in (
        "backends.bundles",
        "backends.stream",
        "chip",
        "check",
        "cli",
        "explain",
        "sim",
    ):
        assert not any(f"{name}.".startswith(f"tilewright.{package}.") for name in ours), package


def test_kernels_bring_no_models():
    third, ours = imported("import tilewright; tilewright.kernel")
    assert third <= RUNS_MODELS | {"islpy", "typing_extensions"}
    assert not {"tilewright.compiler", "tilewright.frontends.onnx.load"} & ours


def test_only_the_command_line_brings_its_libraries():
    third, _ = imported("import tilewright.cli.main")
    assert third >= {"rich", "typer"}


def test_names_that_come_later_are_public_and_where_they_are_said_to_be():
    assert set(tilewright.COMPILER) <= set(tilewright.__all__)
    for name, module in tilewright.COMPILER.items():
        assert getattr(tilewright, name).__module__ == f"tilewright.{module}"


def test_a_module_of_that_name_does_not_hide_a_public_name():
    """Importing tilewright.x sets the attribute x, whatever a function x was."""
    modules = {module.name for module in pkgutil.iter_modules(tilewright.__path__)}
    assert not modules & set(tilewright.__all__)
