"""FLOPs of whole tiles against counters: kernels of an H100 (ncu 2025.3, PyTorch 2.11) with what was counted."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.report_data.report import Launch

from ncu_tools.model.expected.both_sides import MeasuredLaunches, Operators
from ncu_tools.model.expected.kernel_tiles import Tile
from ncu_tools.model.expected.padded_kernels import FEW, PaddedKernel, PaddedKernels
from ncu_tools.model.expected.tile_padding import products_of, ways
from tests.support.launches import launch, metric, sass, table

PLACE = ("forward", "model")
XMMA = "sm90_xmma_{}_nhwckrsc_nhwc_tilesize{}_warpgroupsize1x1x1_g1_execute_segment_k_off_kernel__5x_cudnn"
SM80 = "sm80_xmma_{}_nhwckrsc_nhwc_tilesize{}_execute_kernel__5x_cudnn"
TEMPLATE = "void cutlass__5x_cudnn::Kernel<conv::Multistage<gemm::GemmShape<{}>, conv::Conv2dWgradOutputGradient>>(T)"
FUSED = "cudnn_generated_fort_native_sdpa_{}_flash_fprop_wgmma_f16_knob_7_{}_4x1x1_cga1x1x1_kernel0_0"
STEM, LAST = "32x3x224x224 64x3x7x7", "32x512x7x7 512x512x3x3"
GROUPED = "32x128x56x56 128x4x3x3"


def kernel(
    name: str,
    flops: float,
    *,
    grid: tuple[int, int, int] = (1, 1, 1),
    cluster: tuple[int, int] = (0, 0),
    cores: bool = False,
    **attributes: Any,
) -> Launch:
    """A launch with FLOPs of tensor cores, or multiply-adds of CUDA cores."""
    attributes.setdefault("module", PLACE[1])
    one = launch(name, sass(ffma=flops / 2) if cores else {}, phase=PLACE[0], grid=grid, **attributes)
    one.measures = {"flops": flops, "tensor_flops": 0.0 if cores else flops}
    one.metrics |= {f"launch__cluster_dim_{axis}": metric(blocks) for axis, blocks in zip("xy", cluster, strict=True)}
    return one


def matched(launches: list[Launch], *operators: tuple[str, str, float], iterations: int = 1) -> list[PaddedKernel]:
    """Launches beside operators with their FLOPs, all in one module."""
    names, shapes, flops = zip(*operators, strict=True)
    rows = {
        "kernel_short": names, "shapes": shapes, "flops": flops, "dram_bytes": [1.0] * len(names),
        "contraction_flops": flops, "phase": [PLACE[0]] * len(names), "module": [PLACE[1]] * len(names),
    }  # fmt: skip
    work = MeasuredLaunches(table(*launches)), Operators(pa.table(rows))
    return PaddedKernels(*work, iterations).at(PLACE)


@pytest.mark.parametrize(
    ("name", "operator", "shapes", "expected", "measured", "words"),
    [
        ("nvjet_sm90_hsh_320x128_64x3_1x2_h_bz_coopB_NNT", "mm", "8192x8192 8192x8192", 2.0 * 8192**3, 1116691496960.0, ""),
        ("nvjet_sm90_qqtst_144x128_128x6_1x2_h_bz_coopA_algo2_TNN", "_scaled_mm", "8192x8192 8192x8192 () ()",
         2.0 * 8192**3, 1101659111424.0, ""),
        ("cutlass_80_tensorop_s1688gemm_256x64_32x3_nn_align4", "mm", "32x4096 4096x4096", 1073741824.0, 2147483648.0, ""),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x64x32_warpgroupsize1x1x1_execute", "convolution",
         "32x256x56x56 64x256x1x1", 3288334336.0, 3355443200.0, " per image"),
        (XMMA.format("fprop", "128x64x64"), "convolution", LAST, 7398752256.0, 7851737088.0, ""),
        (XMMA.format("fprop", "64x64x32"), "convolution", LAST, 7398752256.0, 7549747200.0, ""),
        (SM80.format("fprop", "128x32x16"), "convolution", STEM, 7552892928.0, 8220835840.0, ""),
        ("cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_nhwc_align8", "convolution", STEM, 7552892928.0,
         80564191232.0, " with channels padded per filter position"),
        ("sm90_xmma_fprop_image_first_layer_hmma_k64c4r7s7_stride2x2_tile16x64x64_tensor1688_execute", "convolution", STEM,
         7552892928.0, 13153337344.0, " with channels padded to 4"),
        ("sm90_xmma_fprop_implicit_gemm_tilesize256x32x32_warpgroupsize1x1x1_g8_execute_segment_k_off", "convolution",
         GROUPED, 924844032.0, 1849688064.0, " with groups merged to 8 channels"),
        ("sm80_xmma_fprop_implicit_gemm_tilesize64x64x64_stage3_warpsize1x4x1_g16_tensor16x8x16", "convolution", GROUPED,
         924844032.0, 3699376128.0, " with groups merged to 16 channels"),
        (XMMA.format("wgrad", "128x128x32"), "convolution_backward", "8x512x7x7 8x512x7x7 512x512x3x3", 3699376128.0,
         1962934272.0, ""),
        (XMMA.format("dgrad", "128x64x32"), "convolution_backward", "8x512x7x7 8x256x14x14 512x256x3x3", 1849688064.0,
         1207959552.0, ""),
        (SM80.format("dgrad", "64x32x64"), "convolution_backward", "8x256x14x14 8x128x28x28 256x128x3x3", 1849688064.0,
         3699376128.0, " over the zeros of the stride"),
        (FUSED.format("sm90", "64x128x64"), "_scaled_dot_product_flash_attention", "1x32x512x64 1x4x512x64",
         2147483648.0, 1342177280.0, " under a causal mask"),
        (FUSED.format("sm80", "16x128x64"), "_scaled_dot_product_flash_attention", "1x32x1x64 1x4x513x64", 4202496.0,
         10485760.0, " with the query heads of a key head together"),
        ("nvjet_sm90_tst_8x64_64x16_4x1_v_bz_TNN", "mm", "1x2048 2048x256", 1048576.0, 67108864.0, ""),
    ],
)  # fmt: skip
def test_tensor_kernels_compute_whole_tiles(
    name: str, operator: str, shapes: str, expected: float, measured: float, words: str
) -> None:
    (found,) = matched([kernel(name, measured)], (operator, shapes, expected))
    assert (found.matches, found.words) == (True, words)
    assert found.padded == pytest.approx(measured, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "operator", "shapes", "expected", "cluster", "measured"),
    [
        ("sm90_xmma_gemm_tilesize64x256x32_warpgroupsize1x1x1", "bmm", "8x1024x1024 8x1024x1024", 8 * 2.0 * 1024**3, (1, 3),
         19327352832.0),
        ("nvjet_sm90_tst_64x24_64x16_2x4_h_bz_TNT", "mm", "512x2048 2048x256", 536870912.0, (8, 1), 603979776.0),
        ("nvjet_sm90_tst_256x8_64x6_2x1_v_bz_TNT", "mm", "1x2048 2048x32000", 131072000.0, (2, 1), 1056964608.0),
        (XMMA.format("fprop", "128x128x32"), "convolution", "32x128x56x56 128x128x3x3", 7398752256.0, (1, 8), 7549747200.0),
        (XMMA.format("fprop", "64x256x32"), "convolution", "8x128x28x28 256x128x3x3", 924844032.0, (1, 4), 1056964608.0),
        (XMMA.format("fprop", "64x64x32"), "convolution", "8x256x14x14 512x256x3x3", 924844032.0, (4, 2), 1207959552.0),
        (XMMA.format("dgrad", "128x64x32"), "convolution_backward", "8x512x7x7 8x512x7x7 512x512x3x3", 3699376128.0, (1, 3),
         2717908992.0),
        (XMMA.format("dgrad", "128x64x32"), "convolution_backward", "8x128x28x28 8x128x28x28 128x128x3x3", 3699376128.0,
         (5, 1), 1887436800.0),
        (XMMA.format("wgrad", "128x64x32"), "convolution_backward", "8x128x28x28 8x64x56x56 128x64x3x3", 1849688064.0,
         (2, 1), 1027604480.0),
    ],
)  # fmt: skip
def test_blocks_fill_whole_clusters(
    name: str, operator: str, shapes: str, expected: float, cluster: tuple[int, int], measured: float
) -> None:
    (found,) = matched([kernel(name, measured, cluster=cluster)], (operator, shapes, expected))
    assert (found.matches, found.words) == (True, f" in clusters of {cluster[0]}x{cluster[1]}")


def test_blocks_alone_do_not_fill_clusters() -> None:
    batch = ("bmm", "8x1024x1024 8x1024x1024", 8 * 2.0 * 1024**3)
    (found,) = matched([kernel("sm90_xmma_gemm_tilesize64x256x32_warpgroupsize1x1x1", 19327352832.0)], batch)
    assert (found.matches, found.padded) == (False, batch[2])


@pytest.mark.parametrize(
    ("tile", "shapes", "expected", "grid", "measured"),
    [
        ("64, 64, 32", "8x128x28x28 8x64x56x56 128x64x1x1", 205520896.0, (2, 1, 9), 103809024.0),
        ("64, 128, 16", "8x64x112x112 8x3x224x224 64x3x7x7", 1888223232.0, (2, 1, 54), 3312451584.0),
    ],
)
def test_parts_of_split_k_are_equally_deep(
    tile: str, shapes: str, expected: float, grid: tuple[int, int, int], measured: float
) -> None:
    one = kernel(TEMPLATE.format(tile), measured, grid=grid)
    (found,) = matched([one], ("convolution_backward", shapes, expected))
    assert (found.matches, found.words) == (True, f" in {grid[2]} parts of split-K")


@pytest.mark.parametrize(
    ("name", "operator", "shapes", "expected", "measured"),
    [
        ("implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1>", "convolution", STEM, 7552892928.0, 7809794048.0),
        ("implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1>", "convolution", GROUPED, 924844032.0, 256901120.0),
        ("void detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, 0>(int)", "convolution_backward",
         "8x128x28x28 8x64x56x56 128x64x1x1", 205520896.0, 104857600.0),
        ("cutlass_80_simt_sgemm_128x32_8x5_nn_align1", "bmm", "1x32x1 1x1x512", 32768.0, 262144.0),
        ("sm80_xmma_gemm_nn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma", "mm", "1024x1024 1024x1024", 2.0 * 1024**3,
         2.0 * 1024**3 + 2 * 1024**2),
    ],
)  # fmt: skip
def test_kernels_on_cuda_cores_scale_their_results_besides(
    name: str, operator: str, shapes: str, expected: float, measured: float
) -> None:
    (found,) = matched([kernel(name, measured, cores=True)], (operator, shapes, expected))
    assert found.matches


def test_a_launch_per_group_has_the_flops_of_one() -> None:
    one = kernel("implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1>", 256901120.0, cores=True)
    assert matched([one], ("convolution", GROUPED, 924844032.0))[0].expected == 924844032.0 / 32


def test_each_operator_is_computed_once_per_iteration() -> None:
    product, name = ("mm", "100x64 64x64", 2.0 * 100 * 64 * 64), "cutlass_tensorop_s1688gemm_64x64_32x6_nn_align4"
    launches = [kernel(name, 2.0 * 128 * 64 * 64) for _ in range(3)]
    assert [one.matches for one in matched(launches, product, iterations=2)] == [True, True]
    assert [one.matches for one in matched(launches, product, product)] == [True, True]


def test_two_operators_of_a_module_are_told_apart_by_their_flops() -> None:
    shapes = ("8x1000 1000x512", "1000x8 8x512")
    launches = [
        kernel("cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4", 66060288.0, grid=(8, 1, 9)),
        kernel("cutlass_80_tensorop_s1688gemm_64x64_32x6_nt_align4", 33554432.0, grid=(128, 1, 1)),
    ]
    found = matched(launches, *(("mm", one, 8192000.0) for one in shapes))
    assert [one.padded / one.expected for one in found] == pytest.approx([8.064, 4.096])
    assert all(one.matches for one in found)


def test_other_flops_than_those_of_the_tile_do_not_match() -> None:
    winograd = kernel("sm80_xmma_gemm_f32f32_nt_n_tilesize32x32x8_stage3_ffma", 463601664.0, cores=True)
    (found,) = matched([winograd], ("convolution_backward", "8x128x28x28 8x128x28x28 128x128x3x3", 3699376128.0))
    assert not found.matches


def test_a_kernel_is_no_other_direction_and_attention_no_plain_product() -> None:
    forward = ("convolution", LAST, 7398752256.0)
    assert matched([kernel(XMMA.format("dgrad", "64x64x32"), 7549747200.0)], forward) == []
    attention = ("_scaled_dot_product_flash_attention", "1x1x128x64 1x1x128x64", 4.0 * 128 * 128 * 64)
    assert matched([kernel("nvjet_tst_128x128_64x4_1x1_h_bz_NNT", 4.0 * 128 * 128 * 64)], attention) == []


def test_too_many_different_operators_are_not_guessed_at() -> None:
    products = [("mm", f"{rows}x64 64x64", 2.0 * rows * 64 * 64) for rows in range(1, FEW + 2)]
    one = kernel("ampere_sgemm_64x64_nn", 2.0 * 64 * 64 * 64)
    assert len(matched([one], *products[:FEW])) == 1
    assert matched([one], *products) == []


sizes = st.integers(1, 400)
tiles = st.builds(Tile, st.sampled_from((8, 64, 320)), st.sampled_from((16, 64, 128)), st.sampled_from((1, 8, 64)))


@given(sizes, sizes, sizes, st.integers(1, 4), tiles, st.tuples(st.integers(1, 8), st.integers(1, 4)))
def test_whole_tiles_have_no_fewer_flops_and_at_most_one_more_tile_a_side(
    m: int, n: int, k: int, number: int, tile: Tile, cluster: tuple[int, int]
) -> None:
    flops = 2.0 * number * m * n * k
    (product,) = products_of("bmm", f"{number}x{m}x{k} {number}x{k}x{n}", flops)
    side = max(tile.rows, tile.columns) * max(cluster)
    for way in ways(product, "gemm", tile, cluster, 1):
        assert flops / number <= way.flops <= 2.0 * (m + side) * (n + side) * (k + tile.depth)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), tiles)
def test_shapes_that_fill_their_tiles_are_not_padded(m: int, n: int, images: int, channels: int, tile: Tile) -> None:
    side = tile.rows * tile.columns
    places, out, depth = m * side, n * side, channels * tile.depth
    flops = 2.0 * images * places * out * depth
    (product,) = products_of("convolution", f"{images}x{depth}x{places}x1 {out}x{depth}x1x1", flops)
    assert {way.flops for way in ways(product, "fprop", tile, (1, 1), 1)} == {flops}
