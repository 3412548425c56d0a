"""The table of chips is NVIDIA's own list, and every chip has a compute capability, tensor counters and passes."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
from ncu_launch.counters.chips import chip_of, chips, find_chip
from ncu_launch.counters.metrics import table


class _Initialize(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("reserved", ctypes.c_void_p))


class _ChipNames(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("reserved", ctypes.c_void_p),
        ("names", ctypes.POINTER(ctypes.c_char_p)),
        ("number", ctypes.c_size_t),
    )


def chips_of_nvidias_library(path: Path) -> set[str]:
    """The chips that NVIDIA's host library lists; it needs neither GPU nor driver."""
    library = ctypes.CDLL(str(path))
    start = _Initialize(ctypes.sizeof(_Initialize), None)
    assert library.NVPW_InitializeHost(ctypes.byref(start)) == 0
    found = _ChipNames(ctypes.sizeof(_ChipNames), None)
    assert library.NVPW_GetSupportedChipNames(ctypes.byref(found)) == 0
    return {found.names[index].decode() for index in range(found.number)}


def test_the_newest_ncu_knows_the_chips_that_its_own_library_lists() -> None:
    package = pytest.importorskip("ncu_report", reason="NVIDIA's reader is missing: pip install '.[ncu-rep]'")
    library = Path(package.__file__).with_name("libnvperf_host.so")
    if not library.is_file():
        pytest.skip(
            "NVIDIA's library of metrics is called libnvperf_host.so in the Linux wheels of ncu-report alone: run it on Linux"
        )
    ours = {chip.name for chip in chips() if chip.known_to(None)}
    assert chips_of_nvidias_library(library) <= ours


@pytest.mark.parametrize(
    ("capability", "name"),
    [("10.0", "GB100"), ("10.3", "GB110"), ("10.7", "GR100"), ("11.0", "GB10B"), ("12.0", "GB202"), ("12.1", "GB20B")],
)
def test_blackwell_and_rubin_are_known_by_their_compute_capability(capability: str, name: str) -> None:
    chip = chip_of(capability)
    assert chip is not None
    assert chip.name == name


def test_the_passes_of_every_family_but_xavier_were_counted() -> None:
    families = {chip.family for chip in chips()}
    assert families - set(table("passes")["family"]) == {find_chip("GV11B").family}
