"""A stand-in for nvdisasm: what it printed of the kept cubins, in `sample_reports/binaries/*.sass`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ncu_parsers.ncu_rep.sass import sass_by_nvdisasm

from ncu_tools.binaries import kernel_listing
from tests.conftest import SAMPLES

BINARIES = SAMPLES / "binaries"


def use_kept_sass(patch: pytest.MonkeyPatch, changed: Callable[[bytes], bytes] = bytes) -> None:
    """Let nvdisasm answer with the kept text of the cubin that it is given, both `changed`; it refuses all others."""
    kept = {
        changed(path.with_suffix(".cubin").read_bytes()): changed(path.read_bytes()).decode()
        for path in BINARIES.glob("*.sass")
    }

    def ask(command: list[str]) -> tuple[int, str] | None:
        text = kept.get(Path(command[-1]).read_bytes())
        return None if text is None else (0, text)

    patch.setattr(sass_by_nvdisasm, "ask", ask)
    for module in (sass_by_nvdisasm, kernel_listing):
        patch.setattr(module, "tool_path", lambda: "nvdisasm")
    kernel_listing._disassembly.cache_clear()


def use_no_disassembler(patch: pytest.MonkeyPatch) -> None:
    """Let this machine have no nvdisasm."""
    for module in (sass_by_nvdisasm, kernel_listing):
        patch.setattr(module, "tool_path", lambda: None)
    kernel_listing._disassembly.cache_clear()
