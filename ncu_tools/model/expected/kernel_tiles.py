"""The tile in the name of a matrix kernel: rows x columns of the result, and depth of a slice of the products.

cuBLAS, cuDNN and CUTLASS write tiles into the names of their kernels, each family in its own form.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Tile(NamedTuple):
    """Rows and columns of the result that a block computes at once, and its inner step (1 if unnamed)."""

    rows: int
    columns: int
    depth: int = 1

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}" + (f"x{self.depth}" if self.depth > 1 else "")


_SIZES = tuple(
    re.compile(pattern)
    for pattern in (
        r"tile(?:size)?(\d+)x(\d+)x(\d+)",  # sm90_xmma_gemm_..._tilesize128x64x32_..., ..._tile16x64x64_...
        r"GemmShape<(\d+), ?(\d+), ?(\d+)>",  # CUTLASS templates: the first shape is the block's
        r"_(\d+)x(\d+)x(\d+)_\d+x\d+x\d+_",  # cutlass3x_..._128x256x64_2x1x1_...: the second shape is the cluster
        r"_(\d+)x(\d+)_(\d+)x\d+_",  # cutlass_..._256x128_32x3_..., nvjet_..._320x128_64x3_...: the last are stages
        r"_(\d+)x(\d+)_\w*stages_(\d+)x\d+_",  # ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn
        r"(?:gemm|cudnn)_(?:\w+?_)?(\d+)x(\d+)_",  # ampere_sgemm_128x64_nn, volta_scudnn_128x64_relu_...
    )
)
_POWERS = re.compile(
    r"(?:implicit_convolve_sgemm|dgrad_engine|wgrad_alg\d_engine)<(?:[a-z_]\w*, )+(?:\d{2,}, )?(\d), (\d), (\d), "
)
"""cuDNN's older templates, such as implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, ...>: 32 x 32 x 8."""


def tile_of(kernel: str) -> Tile | None:
    """The tile in a kernel's name, None if it has none."""
    kernel = kernel.replace("(int)", "")  # a cast in template arguments, as some versions of ncu print it
    for pattern in _SIZES:
        if found := pattern.search(kernel):
            return Tile(*map(int, found.groups()))
    if found := _POWERS.search(kernel):
        return Tile(*(2 ** int(power) for power in found.groups()))
    return None


_GROUP_WIDTH = re.compile(r"_g(\d+)_")
_CHANNELS = re.compile(r"_k\d+c(\d+)r\d+s\d+_")
_DIRECTION = re.compile(r"fprop|dgrad|wgrad", re.IGNORECASE)


def group_width(kernel: str) -> int:
    """Channels that a kernel of grouped convolutions multiplies together ("_g16_"); 1 if not named."""
    found = _GROUP_WIDTH.search(kernel)
    return int(found[1]) if found else 1


def channels_of(kernel: str) -> int:
    """Channels for which a kernel of first layers is built ("_k64c4r7s7_"); 0 if not named."""
    found = _CHANNELS.search(kernel)
    return int(found[1]) if found else 0


def direction_of(kernel: str) -> str:
    """The product of a convolution in a kernel's name: "fprop", "dgrad" or "wgrad"; "" if none."""
    found = _DIRECTION.search(kernel)
    return found[0].lower() if found else ""
