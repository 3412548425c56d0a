"""The C extension with the loops over every byte of a big report. Without a compiler, Python's loops take its place.

Everything else about the package is in setup.cfg, which cannot describe extensions. The sources are ISO C11, which
every compiler accepts without options of its own; pyproject.toml says how wheels are built.
"""

from setuptools import Extension, setup

LOOPS = "parsers/ncu_parsers/streaming/cells/native"

setup(
    ext_modules=[
        Extension(
            "ncu_parsers.streaming.cells._rows",
            [f"{LOOPS}/rows.c"],
            # Headers, which a source distribution holds because they are named here.
            depends=[f"{LOOPS}/texts.h"],
            optional=True,
        )
    ]
)
