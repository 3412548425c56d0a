"""The options of the plugin."""

UPDATE, CPU, WITHOUT_NCU = "--ncu-bench-update", "--ncu-bench-cpu", "--ncu-bench-without-ncu"
