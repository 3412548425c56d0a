"""Facts of code: occupancy over blocks, mix, widths, slow paths, loops with atomics, live registers, names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.binaries.code_files import CodeReading, kernels_in
from ncu_parsers.binaries.kernel_resources import KernelResources

from ncu_tools.binaries.code_names import names_apart, readable_code_name
from ncu_tools.binaries.code_places import rows_of_instructions, rows_of_lines, spilled_bytes
from ncu_tools.binaries.demangled_names import MOST_LETTERS, demangled
from ncu_tools.binaries.kernel_listing import CodeListing, listing_of, normalised
from ncu_tools.binaries.occupancy_of_code import occupancy_for, sm_of, table_of_occupancy, threads_of
from ncu_tools.binaries.static_facts import StaticFacts, facts_of
from tests.support.kept_sass import BINARIES, use_kept_sass

A100 = KernelResources("k", "sm_80", registers=64, shared_bytes=0)


@pytest.fixture(scope="module")
def listings() -> Iterator[dict[str, CodeListing]]:
    with pytest.MonkeyPatch.context() as patch:
        use_kept_sass(patch)
        found = {}
        for kernel in kernels_in(BINARIES / "kernels.sm_90.cubin", CodeReading()):
            listing = listing_of(kernel)
            assert listing is not None
            found[kernel.resources.name] = listing
        yield found


@pytest.fixture(scope="module")
def facts(listings: dict[str, CodeListing]) -> dict[str, StaticFacts]:
    return {name: facts_of(listing) for name, listing in listings.items()}


class TestOccupancy:
    def test_names_the_limiter_and_the_next_step(self) -> None:
        found = occupancy_for(A100, 256)
        assert found is not None
        assert (found.blocks, found.fraction, found.limiters) == (4, 0.5, ("registers",))
        assert [(step.to, step.fraction) for step in found.steps] == [(48, 0.625)]

    def test_is_varied_over_block_sizes_and_then_over_shared_memory(self) -> None:
        table = table_of_occupancy(replace(A100, max_threads=(512, 1, 1)))
        assert [one.threads for one in table if not one.dynamic_shared_bytes] == [32, 64, 128, 256, 512]
        assert [one.dynamic_shared_bytes for one in table][-3:] == [1 << 14, 1 << 15, 1 << 16]

    def test_of_a_kernel_with_metadata_is_of_its_own_launch(self) -> None:
        (only,) = table_of_occupancy(replace(A100, threads=128, dynamic_shared_bytes=98304))
        assert (only.threads, only.blocks, only.limiters) == (128, 1, ("shared memory",))

    def test_is_zero_if_no_block_fits(self) -> None:
        found = occupancy_for(replace(A100, shared_bytes=200_000), 128)
        assert found is not None
        assert (found.blocks, found.fraction) == (0, 0.0)

    def test_is_unknown_without_registers_or_for_an_unknown_architecture(self) -> None:
        assert occupancy_for(replace(A100, registers=None), 128) is None
        assert occupancy_for(replace(A100, architecture="sm_999"), 128) is None
        assert sm_of("sm_90a") == sm_of("sm_90")

    def test_threads_are_those_of_metadata_else_required_else_bounds_else_a_usual_block(self) -> None:
        assert threads_of(replace(A100, threads=64, required_threads=(32, 1, 1))) == (64, True)
        assert threads_of(replace(A100, required_threads=(32, 2, 1))) == (64, True)
        assert threads_of(replace(A100, max_threads=(16, 16, 1))) == (256, True)
        assert threads_of(A100) == (256, False)

    @given(registers=st.integers(1, 255), shared=st.integers(0, 160_000), threads=st.integers(1, 1024))
    def test_never_grows_with_what_a_block_needs(self, registers: int, shared: int, threads: int) -> None:
        less, more = (
            occupancy_for(replace(A100, registers=one, shared_bytes=two), threads)
            for one, two in ((registers, shared), (min(registers + 8, 255), shared + 1024))
        )
        assert less is not None
        assert more is not None
        assert 0 <= more.fraction <= less.fraction <= 1


class TestFacts:
    def test_count_every_instruction_of_the_print(self, listings: dict[str, CodeListing]) -> None:
        for name, listing in listings.items():
            assert len(listing.offsets) * 16 == listing.kernel.resources.code_bytes, name
            assert sum(facts_of(listing).by_opcode.values()) == len(listing.offsets)

    def test_tell_widths_of_accesses(self, facts: dict[str, StaticFacts]) -> None:
        assert facts["copy"].widths == {"global load": {4: 1}, "global store": {4: 1}}
        assert facts["copy_wide"].widths == {"global load": {16: 1}, "global store": {16: 1}}

    def test_tell_the_path_to_tensor_cores(self, facts: dict[str, StaticFacts]) -> None:
        assert set(facts["tile_product"].tensor) == {"mma.sync"}
        assert facts["dot_rows"].tensor == {}

    def test_tell_slow_paths(self, facts: dict[str, StaticFacts]) -> None:
        assert facts["quotient"].slow["division FP32 (FCHK)"] == 1
        assert facts["remainder_of"].slow["division of integers (I2F.RP)"] == 1
        assert facts["scaled"].slow["float to double (F2F.F64.F32)"] == 1
        assert facts["copy"].slow == {}

    def test_find_the_loop_with_its_atomics(self, facts: dict[str, StaticFacts]) -> None:
        (loop,) = facts["counted"].loops
        assert (loop.atomics, loop.is_inner) == (1, True)
        assert facts["copy"].loops == []

    def test_a_return_from_a_slow_path_is_no_loop(self, facts: dict[str, StaticFacts]) -> None:
        assert facts["quotient"].loops == []


class TestPlaces:
    def test_of_spills_add_up_to_the_bytes_of_the_kernel(self, listings: dict[str, CodeListing]) -> None:
        listing = listings["crowded"]
        spills = listing.kernel.resources.spills
        assert spills is not None
        assert sum(spilled_bytes(listing).values()) == spills.bytes == 520
        assert sum(row["local_bytes"] or 0 for row in rows_of_lines(listing)) == 520
        assert sum(row["local_bytes"] or 0 for row in rows_of_instructions(listing)) == 520

    def test_have_fewer_live_registers_than_the_kernel_takes(self, listings: dict[str, CodeListing]) -> None:
        for name, listing in listings.items():
            registers = listing.kernel.resources.registers
            assert registers is not None
            assert listing.live is not None, name
            assert max(listing.live) <= registers

    def test_are_lines_of_the_source(self, listings: dict[str, CodeListing]) -> None:
        assert {row["place"] for row in rows_of_lines(listings["copy"])} <= {
            f"kernels.cu:{line}" for line in range(4, 9)
        }


class TestNormalising:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("FADD R5, R0, R0 ;", "FADD R7, R2, R2"),
            ("@!P0 BRA `(.L_x_1) 0x90", "@!P1 BRA `(.L_x_7) 0x120"),
            ("LDG.E R4, desc[UR4][R2.64+0x10]", "LDG.E R6, desc[UR8][R8.64+0x10]"),
        ],
    )
    def test_leaves_out_numbers_of_registers_and_labels(self, one: str, other: str) -> None:
        assert normalised(one) == normalised(other)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("LDG.E R4, [R2.64+0x10]", "LDG.E R4, [R2.64+0x20]"), ("FADD R5, R0, R0", "FADD.FTZ R5, R0, R0"),
            ("MOV R1, 0x5", "MOV R1, 0x6"),
        ],
    )  # fmt: skip
    def test_keeps_what_an_instruction_does(self, one: str, other: str) -> None:
        assert normalised(one) != normalised(other)


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("_Z7doubledIfEvPT_", "doubled"), ("saxpy", "saxpy"),
        ("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEEEEviT0_", "elementwise fill fp32"),
        ("_Z", "_Z"),
    ],
)  # fmt: skip
def test_a_kernel_of_a_binary_is_called_as_in_reports(mangled: str, name: str) -> None:
    assert readable_code_name(mangled) == name


def test_kernels_of_one_name_are_told_apart_by_what_differs() -> None:
    names = names_apart(["_Z1kIfEvPT_", "_Z1kIdEvPT_", "_Z1jv"])
    assert names == {"_Z1kIfEvPT_": "k (fp32)", "_Z1kIdEvPT_": "k (fp64)", "_Z1jv": "j"}


BY_CXXFILT = [
    ("_Z7doubledIfEvPT_", "void doubled<float>(float*)"),
    ("_ZN1a1bEv", "a::b()"),
    ("_Z1kPFviEPA4_KfRS1_", "k(void (*)(int), float const (*) [4], float const&)"),
    (
        "_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocastIZNS0_51_GLOBAL__N__7b48bba2_12_PowKernel_"
        "cu_977e8e6d_5569622pow_scalar_tensor_implIaEEvRNS_18TensorIteratorBaseET_EUlaE_EEvS6_RKS7_EUliE_EEviT1_",
        "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::(anonymous namespace)::"
        "pow_scalar_tensor_impl<signed char>(at::TensorIteratorBase&, signed char)::{lambda(signed char)#1}>(at::"
        "TensorIteratorBase&, at::native::(anonymous namespace)::pow_scalar_tensor_impl<signed char>(at::"
        "TensorIteratorBase&, signed char)::{lambda(signed char)#1} const&)::{lambda(int)#1}>(int, at::native::"
        "gpu_kernel_impl_nocast<at::native::(anonymous namespace)::pow_scalar_tensor_impl<signed char>(at::"
        "TensorIteratorBase&, signed char)::{lambda(signed char)#1}>(at::TensorIteratorBase&, at::native::(anonymous "
        "namespace)::pow_scalar_tensor_impl<signed char>(at::TensorIteratorBase&, signed char)::{lambda(signed char)#1} "
        "const&)::{lambda(int)#1})",
    ),
    ("_Z1kIJfdEEvDpT_", "void k<float, double>(float, double)"),
    (
        "_ZN2at6native28upsample_nearest1d_out_frameIdXadL_ZNS0_37nearest_neighbor_compute_source_indexEfiiEEEEvPKT_mPS3_f",
        "void at::native::upsample_nearest1d_out_frame<double, &at::native::nearest_neighbor_compute_source_index>(double "
        "const*, unsigned long, double const*, float)",
    ),
]  # fmt: skip
"""Names of kernels, and what c++filt of binutils prints of them."""


@pytest.mark.parametrize(("mangled", "name"), BY_CXXFILT)
def test_a_mangled_name_is_read_as_cxxfilt_reads_it(mangled: str, name: str) -> None:
    assert demangled(mangled) == name


def test_parameters_that_are_not_read_are_left_out() -> None:
    assert demangled("_Z1kIfEvDTplT_T_E") == "void k<float>"


def test_a_name_that_doubles_with_each_substitution_is_not_written() -> None:
    pairs = "".join(f"S_IS{digit}_S{digit}_E" for digit in "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    assert demangled(f"_Z1k1aIiE{pairs}") == "k"


@pytest.mark.parametrize(
    "mangled", ["_Z" + "9" * 5000 + "k", "_Z1kI" + "J" * 5000, "_Z" * 5000, "_Z" + "Z" * 5000, "_Z" + "1aB" * 5000]
)
def test_a_name_that_nests_without_end_is_left_as_it_is(mangled: str) -> None:
    assert demangled(mangled) in (None, "k")


@given(st.text(alphabet="_ZNKSTUJXLPIEFDlav0123456789k", max_size=80))
def test_any_text_has_a_name(text: str) -> None:
    assert readable_code_name(text) or not text
    assert len(demangled(f"_Z1kI{text}") or "") <= MOST_LETTERS


def test_a_kernel_that_only_a_print_names_has_no_listing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_kept_sass(monkeypatch)
    kernel = next(iter(kernels_in(BINARIES / "ptxas.printed", CodeReading())))
    assert listing_of(kernel) is None
