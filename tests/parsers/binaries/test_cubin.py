"""Resources of kernels from the ELF file alone: those that ptxas printed, whatever compiler wrote it."""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.binaries.code_of_report import launched_kernels
from ncu_parsers.binaries.cubin import Cubin
from ncu_parsers.binaries.kernel_resources import KernelResources, Spills
from ncu_parsers.binaries.resource_usage_text import resources_in_text
from ncu_parsers.ncu_rep import launches_in
from ncu_parsers.sources.elf import DamagedBinary
from ncu_parsers.sources.sources import Source

from tests.conftest import SAMPLES
from tests.support.cubins import BITS, SYMBOLS, TEXTS, cubin_of, elf_of, only
from tests.support.nightly import by_day
from tests.support.reports import MEASURED, reports_with_code, shared_reports

BINARIES = SAMPLES / "binaries"
BY_DAY = {*shared_reports("ncu_rep"), *shared_reports("ncu_rep_full"), *MEASURED.glob("*.ncu-rep*")}
LEAST_REGISTERS = 16
"""What a launch takes at least of registers, in every report of a kernel that needs fewer."""


def kernels_of(name: str) -> dict[str, KernelResources]:
    return {one.name: one for one in Cubin((BINARIES / name).read_bytes()).kernels()}


def printed(kernel: KernelResources) -> KernelResources:
    """What ptxas prints of a kernel."""
    spills = kernel.spills and replace(kernel.spills, offsets=())
    return KernelResources(
        kernel.name, kernel.architecture, kernel.registers, kernel.stack_bytes, spills, kernel.shared_bytes,
        kernel.barriers,
    )  # fmt: skip


def test_registers_stack_spills_shared_memory_and_barriers_are_those_that_ptxas_printed() -> None:
    wanted = resources_in_text((BINARIES / "ptxas.printed").read_text("utf-8"))
    assert len(wanted) == 12
    assert {printed(one) for one in kernels_of("kernels.sm_80.cubin").values()} == set(wanted)


def test_a_kernel_has_its_bounds_parameters_code_and_compiler() -> None:
    found = kernels_of("kernels.sm_90.cubin")["reversed"]
    assert (found.architecture, found.max_threads, found.register_limit) == ("sm_90", (256, 1, 1), 128)
    assert (found.parameter_bytes, found.toolkit, found.shared_bytes, found.barriers) == (16, "13.0", 1024, 1)
    assert found.code_bytes is not None
    assert found.code_bytes % 16 == 0


def test_a_cubin_that_is_cut_to_some_kernels_says_the_same_of_them() -> None:
    whole, named = (BINARIES / "kernels.sm_80.cubin").read_bytes(), kernels_of("kernels.sm_80.cubin")
    for names in (("crowded",), ("reversed", "table")):
        cut = {one.name: one for one in Cubin(only(whole, names)).kernels()}
        assert cut == {name: named[name] for name in names}


def test_an_array_in_local_memory_is_no_spill() -> None:
    found = kernels_of("kernels.sm_90.cubin")
    assert (found["table"].stack_bytes, found["table"].spills) == (32, Spills(0, 0))
    spills = found["crowded"].spills
    assert spills is not None
    assert (spills.store_bytes, spills.load_bytes) == (236, 284)
    assert len(spills.offsets) <= (236 + 284) // 4


def test_spills_are_unknown_where_an_older_compiler_marked_none_and_there_is_a_stack() -> None:
    found = kernels_of("old.sm_86.cubin")
    assert found["crowded"].toolkit == "12.4"
    assert (found["crowded"].spills, found["table"].spills, found["copy"].spills) == (None, None, Spills(0, 0))
    assert (found["crowded"].registers, found["reversed"].shared_bytes) == (64, 1024)


def test_a_cubin_without_attributes_has_a_kernel_of_unknown_resources() -> None:
    kernels = Cubin(cubin_of([(0, 1)])).kernels()
    assert kernels == []  # its symbol is no entry for hosts


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"no ELF file at all" * 9, b"\x7fELF\x01\x01" + bytes(80)])
def test_what_is_no_cubin_is_refused(data: bytes) -> None:
    with pytest.raises(DamagedBinary):
        Cubin(data)


def test_names_that_overlap_cannot_ask_for_more_memory_than_their_table() -> None:
    symbols = struct.pack("<IBBHQQ", 0, 2, 0, 1, 0, 16) * 5000
    data = elf_of(
        [(".text.k", BITS, bytes(16), 0), (".symtab", SYMBOLS, symbols, 3), (".strtab", TEXTS, b"k" * 9999, 0)]
    )
    with pytest.raises(DamagedBinary, match="names overlap"):
        Cubin(data).kernels()


@given(st.data())
def test_a_damaged_cubin_is_refused_or_read_and_never_breaks_the_reader(data: st.DataObject) -> None:
    whole = bytearray((BINARIES / "kernels.sm_80.cubin").read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.integers(0, 255))
    with suppress(DamagedBinary):
        Cubin(bytes(whole[: data.draw(st.integers(0, len(whole)))])).kernels()


@pytest.mark.parametrize("path", by_day(BY_DAY, reports_with_code()), ids=lambda path: path.name[:24])
def test_registers_and_shared_memory_equal_those_of_launches_in_real_reports(path: Path) -> None:
    source = Source(str(path))
    pairs = zip(launched_kernels(source), launches_in(source), strict=True)
    held = [(kernel.resources, metrics) for kernel, (_, metrics) in pairs if kernel.resources]
    for resources, metrics in held:
        launched = metrics.get("launch__registers_per_thread"), metrics.get("launch__shared_mem_per_block_static")
        known = max(resources.registers or 0, LEAST_REGISTERS), resources.shared_bytes
        assert launched in (known, (None, None))  # a launch that failed says neither
    assert held or path.name.startswith(("range", "graph"))
