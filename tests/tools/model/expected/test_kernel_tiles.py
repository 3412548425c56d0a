"""Tiles in the names of kernels: each family of cuBLAS, cuDNN and CUTLASS writes them in its own way."""

from __future__ import annotations

import pytest

from ncu_tools.model.expected.kernel_tiles import Tile, channels_of, direction_of, group_width, tile_of

XMMA = "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x64x64_warpgroupsize1x1x1_g1_execute"
FIRST_LAYER = (
    "sm90_xmma_fprop_image_first_layer_f16f16_f32_f16_nhwckrsc_nhwc_hmma_k64c4r7s7_stride2x2_tile16x64x64_tensor1688_x"
)
TEMPLATE = (
    "void cutlass__5x_cudnn::Kernel<conv::ImplicitGemmConvolution<conv::ImplicitGemmMultistage<"
    "gemm::GemmShape<64, 128, 16>, conv::Conv2dWgradOutputGradientTileAccessIteratorOptimized<"
    "cutlass__5x_cudnn::MatrixShape<64, 16>, gemm::GemmShape<32, 64, 16>>>>>(T1::Params)"
)
THREE = "cutlass3x_sm90_tensorop_s64x256x16gemm_f16_f16_f32_void_f16_128x256x64_2x1x1_0_tnn_align8_warpspecialized"
ATTENTION = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0"


@pytest.mark.parametrize(
    ("kernel", "tile"),
    [
        (XMMA, Tile(128, 64, 64)),
        (FIRST_LAYER, Tile(16, 64, 64)),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma", Tile(64, 64, 8)),
        ("nvjet_sm90_hsh_320x128_64x3_1x2_h_bz_coopB_NNT", Tile(320, 128, 64)),
        ("nvjet_sm90_qqtst_144x128_128x6_1x2_h_bz_coopA_algo2_TNN", Tile(144, 128, 128)),
        ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNT", Tile(192, 192, 64)),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(T1::Params)", Tile(256, 128, 8)),
        (
            "cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_nhwc_align8>",
            Tile(256, 64, 32),
        ),
        (TEMPLATE, Tile(64, 128, 16)),
        (TEMPLATE.replace("64, 128, 16", "(int)64, (int)128, (int)16"), Tile(64, 128, 16)),
        (THREE, Tile(128, 256, 64)),
        ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_32x6_tn", Tile(128, 64, 32)),
        ("ampere_fp16_s16816gemm_fp16_64x64_sliced1x2_ldg8_f2f_stages_64x6_tn", Tile(64, 64, 64)),
        ("ampere_sgemm_32x128_tn", Tile(32, 128)),
        ("volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn", Tile(128, 64)),
        ("volta_scudnn_128x64_relu_small_nn_v1", Tile(128, 64)),
        ("turing_fp16_s1688cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1", Tile(128, 128)),
        ("void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, 0, 0, 1>(int, int)", Tile(32, 32, 8)),
        ("void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)", Tile(64, 32, 8)),
        ("void cnn::wgrad_alg1_engine<float, float, 128, 5, 5, 3, 3, 3, 0, 0>(int)", Tile(32, 32, 8)),
        ("void cudnn::cnn::wgrad_alg0_engine<float, (int)128, (int)5, (int)5, (int)3, (int)3>(int)", Tile(32, 32, 8)),
        (ATTENTION, Tile(64, 128, 64)),
        ("void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8, 9, 0>(T)", None),
        ("conv2d_c1_k1_nchw_shmem_tiling", None),
        ("void at::<unnamed>::CatArrayBatchedCopy<at::<unnamed>::OpaqueType<4>, unsigned int, 3, 64, 64>(T1 *)", None),
        ("void cudnn::nchwToNhwcKernel<float, float, float, 0, 1, 0>(T)", None),
    ],
)  # fmt: skip
def test_a_tile_is_read_from_the_name(kernel: str, tile: Tile | None) -> None:
    assert tile_of(kernel) == tile


def test_a_tile_is_shown_with_its_depth_if_it_has_one() -> None:
    assert (str(Tile(256, 64, 32)), str(Tile(128, 64))) == ("256x64x32", "128x64")


def test_what_a_name_says_of_a_convolution() -> None:
    assert (direction_of(XMMA), group_width(XMMA), channels_of(XMMA)) == ("fprop", 1, 0)
    assert (direction_of(TEMPLATE), group_width(TEMPLATE), channels_of(FIRST_LAYER)) == ("wgrad", 1, 4)
    assert group_width("sm80_xmma_fprop_implicit_gemm_tilesize64x64x64_stage3_warpsize1x4x1_g16_tensor16x8x16") == 16
    assert (direction_of("nvjet_tst_128x256"), channels_of("")) == ("", 0)
