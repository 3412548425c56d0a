"""Names of the plugin that pytest knows: options, and the property of reports with what was measured."""

UPDATE, CPU, WITHOUT_NCU = "--ncu-bench-update", "--ncu-bench-cpu", "--ncu-bench-without-ncu"
MEASURED = "ncu-bench"
"""pytest-xdist brings this property from its workers, and JUnit files keep it."""
