"""How the C runtime is built; everything else about the package stands in pyproject.toml."""

from setuptools import Extension, setup

NATIVE = "src/tilewright/runtime/native"
SOURCES = ("_native", "arena", "pool", "stream", "waits", "events")

setup(
    ext_modules=[
        Extension(
            "tilewright.runtime._native",
            sources=[f"{NATIVE}/{name}.c" for name in SOURCES],
            depends=[f"{NATIVE}/{name}.h" for name in ("tilewright_runtime", "stream")],
            extra_compile_args=["-O3", "-std=c11", "-pthread", "-Wall", "-Wextra"],
            extra_link_args=["-pthread"],
        )
    ]
)
