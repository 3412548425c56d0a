"""Kernels in files and folders: fat binaries, host programs, PTX, prints, Triton's cache, and damaged ones."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.errors import NcuBenchError
from ncu_parsers.binaries.code_files import (
    CodeReading,
    FoundKernel,
    cubin_with,
    holds_code,
    holds_code_or_print,
    kernels_in,
)
from ncu_parsers.binaries.fatbin import LARGEST_IMAGE, Image, ImageKind, images_of
from ncu_parsers.binaries.licences import library_of
from ncu_parsers.binaries.ptx import ptx_kernels
from ncu_parsers.binaries.resource_usage_text import resources_in_text
from ncu_parsers.sources.elf import DamagedBinary

from tests.conftest import SAMPLES
from tests.support.cubins import fatbin_of, library_of_fatbin

BINARIES = SAMPLES / "binaries"


def read(path: Path) -> tuple[list[FoundKernel], CodeReading]:
    reading = CodeReading()
    return list(kernels_in(path, reading)), reading


def library_in(folder: Path, fat: bytes) -> Path:
    path = folder / "extension.so"
    path.write_bytes(library_of_fatbin(fat))
    return path


def images_in(path: Path) -> list[Image]:
    stream = path.open("rb")
    return list(images_of(stream, 0, path.stat().st_size))


@pytest.mark.parametrize("name", ["zstd.fatbin", "lz4.fatbin"])
def test_a_compressed_fat_binary_has_each_kernel_for_each_architecture_and_ptx(name: str) -> None:
    kernels, reading = read(BINARIES / name)
    assert [one.resources.architecture for one in kernels] == ["sm_75"] * 12 + ["sm_120"] * 12
    assert {one.target for _, one in reading.ptx} == {"sm_120"}
    assert len(reading.ptx) == 12
    assert reading.damaged == []


def test_both_compressions_hold_the_same_code() -> None:
    zstd, lz4 = ([one.content() for one in images_in(BINARIES / name)] for name in ("zstd.fatbin", "lz4.fatbin"))
    assert zstd == lz4


@given(content=st.binary(min_size=1, max_size=4096), codec=st.sampled_from(["", "lz4_raw", "zstd"]))
def test_an_image_is_read_back_as_it_was_stored(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, codec: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "one.fatbin"
    path.write_bytes(fatbin_of(content, codec=codec))
    (image,) = images_in(path)
    assert (image.kind, image.architecture) == (ImageKind.CUBIN, 90)
    assert image.content()[: len(content)] == content


@pytest.mark.parametrize("codec", ["lz4_raw", "zstd"])
@pytest.mark.parametrize("announced", [10, 100_000, LARGEST_IMAGE + 1, 1 << 60])
def test_an_image_that_announces_another_size_is_refused(tmp_path: Path, codec: str, announced: int) -> None:
    path = tmp_path / "one.fatbin"
    path.write_bytes(fatbin_of(bytes(50_000), codec=codec, announced=announced))
    (image,) = images_in(path)
    with pytest.raises(DamagedBinary):
        image.content()


def test_a_library_with_kernels_inside_is_read_and_its_other_sections_are_not(tmp_path: Path) -> None:
    fat = (BINARIES / "zstd.fatbin").read_bytes()
    kernels, _reading = read(library_in(tmp_path, fat + bytes(40) + fat))
    assert len(kernels) == 48
    assert len({one.image for one in kernels}) == 4
    cubin = cubin_with(kernels[-1])
    assert cubin is not None
    assert cubin.architecture == "sm_120"


def test_an_archive_of_objects_is_read_member_by_member(tmp_path: Path) -> None:
    one = library_of_fatbin((BINARIES / "zstd.fatbin").read_bytes())
    members = [(b"names/", b"a.o/"), (b"a.o/", one), (b"b.o/", one)]
    whole = b"!<arch>\n"
    for name, content in members:
        whole += b"%-16s%-32s%-10d`\n" % (name, b"0", len(content)) + content + b"\n" * (len(content) % 2)
    path = tmp_path / "lib.a"
    path.write_bytes(whole)
    kernels, _ = read(path)
    assert len(kernels) == 48
    assert cubin_with(kernels[-1]) is not None
    path.write_bytes(whole[:-100])
    with pytest.raises(NcuBenchError, match="an archive is cut"):
        read(path)


def test_memory_does_not_grow_with_the_number_of_images(tmp_path: Path) -> None:
    fat = (BINARIES / "lz4.fatbin").read_bytes()
    peaks = []
    for copies in (2, 12):
        path = library_in(tmp_path, fat * copies)
        tracemalloc.start()
        assert sum(1 for _ in kernels_in(path, CodeReading())) == 24 * copies
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def test_ptx_has_the_bounds_of_its_kernels() -> None:
    kernels, reading = read(BINARIES / "kernels.ptx")
    by_name = {one.name: one for _, one in reading.ptx}
    assert kernels == []
    assert len(by_name) == 12
    assert (by_name["reversed"].max_threads, by_name["reversed"].min_blocks) == ((256, 1, 1), 2)
    assert by_name["copy"].max_threads is None


def test_ptx_bounds_of_one_kernel_are_not_those_of_the_next() -> None:
    text = ".target sm_90\n.visible .entry a(\n)\n.reqntid 128\n{\n}\n.entry b(\n)\n{ .maxntid 5 }"
    assert [one.required_threads for one in ptx_kernels(text)] == [(128, 1, 1), None]


def test_prints_of_ptxas_are_found_among_other_lines_and_device_functions_left_out() -> None:
    text = """[3/9] nvcc -c a.cu
ptxas info    : 8 bytes gmem
ptxas info    : Compiling entry function '_Z1kPf' for 'sm_90a'
ptxas info    : Function properties for _Z6helperf
    64 bytes stack frame, 12 bytes spill stores, 12 bytes spill loads
ptxas info    : Function properties for _Z1kPf
    8 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 40 registers, used 2 barriers, 8 bytes cumulative stack size, 512 bytes smem, 368 bytes cmem[0]
"""
    (kernel,) = resources_in_text(text)
    assert kernel.spills is not None
    assert (kernel.registers, kernel.barriers, kernel.shared_bytes, kernel.spills.bytes) == (40, 2, 512, 12)


def test_shared_memory_of_cuobjdump_is_unknown_where_the_print_names_no_architecture() -> None:
    kernels, _ = read(BINARIES / "cuobjdump.printed")
    shared = {one.resources.name: one.resources.shared_bytes for one in kernels}
    assert (shared["reversed"], shared["copy"]) == (None, 0)  # it counts the driver's share from sm_90 on


def test_triton_says_beside_a_cubin_how_it_is_launched(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "ABC"
    folder.mkdir(parents=True)
    shutil.copy(BINARIES / "kernels.sm_90.cubin", folder / "k.cubin")
    (folder / "k.json").write_text(json.dumps({"num_warps": 4, "shared": 4096}), "utf-8")
    (folder / "k.ptx").write_text((BINARIES / "kernels.ptx").read_text("utf-8"), "utf-8")
    kernels, reading = read(tmp_path / "cache")
    assert {(one.resources.threads, one.resources.dynamic_shared_bytes) for one in kernels} == {(128, 4096)}
    assert reading.files == 2
    assert len(reading.ptx) == 12


def test_a_damaged_file_in_a_folder_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    whole = (BINARIES / "kernels.sm_90.cubin").read_bytes()
    (tmp_path / "a.cubin").write_bytes(whole[:2000])
    (tmp_path / "b.cubin").write_bytes(whole)
    kernels, reading = read(tmp_path)
    assert len(kernels) == 12
    assert len(reading.damaged) == 1
    assert "a.cubin: cut" in reading.damaged[0]
    with pytest.raises(NcuBenchError, match=r"a\.cubin: cut"):
        read(tmp_path / "a.cubin")


def test_a_missing_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NcuBenchError, match="does not exist"):
        read(tmp_path / "nowhere.so")


@pytest.mark.parametrize(
    ("path", "kernel", "library"),
    [
        ("/usr/lib/libcublasLt.so.13", "", "cuBLAS"), ("libcudnn_engines_precompiled.so.9", "", "cuDNN"),
        ("libnccl.so.2", "ncclDevKernel", ""), ("my_cublas_wrapper.so", "_Z5gemm_v", ""),
        ("libtorch_cuda.so", "ampere_sgemm_128x64_tn", "a library of NVIDIA"),
        ("libtorch_cuda.so", "_ZN2at6native6kernelEv", ""),
        ("mine.so", "hopper_gemm", ""),
        ("mine.so", "my_cublas_like", ""),
        ("libtorch_cuda.so", "_ZN8cusparse11csrmv_v2Ev", "a library of NVIDIA"),
    ],
)  # fmt: skip
def test_libraries_whose_licence_forbids_disassembly_are_recognised(path: str, kernel: str, library: str) -> None:
    assert library_of(path, kernel) == library


def test_kernels_of_such_a_library_have_resources_and_no_code(tmp_path: Path) -> None:
    path = tmp_path / "libcublas.so.13"
    shutil.copy(BINARIES / "zstd.fatbin", path)
    kernels, _ = read(path)
    assert kernels[0].resources.registers
    with pytest.raises(NcuBenchError, match="forbids disassembly"):
        cubin_with(kernels[0])


def test_files_with_code_are_recognised_by_their_first_bytes(tmp_path: Path) -> None:
    found = {path.name for path in BINARIES.iterdir() if holds_code_or_print(path)}
    assert {path.name for path in BINARIES.iterdir()} - found == {"make.sh", "kernels.cu", "README.md", *(
        name for name in ("kernels.sm_90.sass", "changed.sm_90.sass"))}  # fmt: skip
    assert not holds_code_or_print(tmp_path / "nowhere")
    assert not holds_code(BINARIES / "ptxas.printed")
    log = tmp_path / "build.log"
    log.write_bytes(b"building\n" * 9000 + (BINARIES / "ptxas.printed").read_bytes())
    assert holds_code_or_print(log)
    assert len(read(log)[0]) == 12
    log.write_bytes(b"==PROF== Profiling\n" + (BINARIES / "ptxas.printed").read_bytes())
    assert not holds_code_or_print(log)
