"""The loops over every byte of a big report are compiled where that is possible; elsewhere Python's stand in.

Everything else about the package is in setup.cfg, which has no place for this.
"""

from setuptools import Extension, setup

setup(ext_modules=[Extension("ncu_parsers._rows", ["parsers/ncu_parsers/_rows.c"], optional=True)])
