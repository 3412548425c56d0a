"""The loops over every byte of a big report are compiled where that is possible; elsewhere Python's stand in.

Everything else about the package is in setup.cfg, which has no place for this.
"""

from setuptools import Extension, setup

LOOPS = "parsers/ncu_parsers/streaming/cells/native"

setup(
    ext_modules=[
        Extension(
            "ncu_parsers.streaming.cells._rows",
            [f"{LOOPS}/rows.c"],
            depends=[f"{LOOPS}/texts.h"],
            optional=True,
        )
    ]
)
