"""The workload of the generated samples: kernels whose operations and bytes follow from their sizes.

Nothing was measured. Operations and bytes are arithmetic (a GEMM of M x N x K does 2 M N K operations); times follow
from the data-sheet peaks of an A100 PCIe 40GB and an assumed efficiency, so that the samples look like reports.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SM_CLOCK_HZ = 1.08e9
DRAM_CLOCK_HZ = 1.215e9
SMS = 108
PEAK_PER_CYCLE = {"fp64": 32, "fp32": 64, "tensor_bf16": 2048}
"""Per SM and cycle: thread instructions for fp64 and fp32, operations for the tensor cores."""
DRAM_BYTES_PER_CYCLE = 1280


@dataclass
class Kernel:
    """One launch: its work in operations and bytes, and its duration (ns)."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    opcodes: dict[str, int] = field(default_factory=dict)
    tensor: dict[str, int] = field(default_factory=dict)
    dram_read: int = 0
    dram_write: int = 0
    efficiency: float = 0.8

    @property
    def duration_ns(self) -> int:
        """Time of the busiest resource divided by the efficiency."""
        flops = {"fp32": "f", "fp64": "d"}
        seconds = [(self.dram_read + self.dram_write) / (DRAM_BYTES_PER_CYCLE * DRAM_CLOCK_HZ)]
        for unit, letter in flops.items():
            instructions = sum(count for opcode, count in self.opcodes.items() if opcode.startswith(letter))
            seconds.append(instructions / (PEAK_PER_CYCLE[unit] * SMS * SM_CLOCK_HZ))
        seconds.append(sum(self.tensor.values()) / (PEAK_PER_CYCLE["tensor_bf16"] * SMS * SM_CLOCK_HZ))
        return max(round(max(seconds) / self.efficiency * 1e9), 2048)


def sgemm(m: int, n: int, k: int) -> Kernel:
    """C = A B in FP32 on the CUDA cores; hfma counts the constants that A100 code moves with HFMA2.MMA."""
    blocks = (m // 128) * (n // 128)
    return Kernel(
        "void sgemm_tiled<float, 128, 128, 8>(float *, const float *, const float *, int, int, int)",
        (m // 128, n // 128, 1), (256, 1, 1),
        opcodes={"ffma": m * n * k, "fadd": 0, "fmul": m * n, "hfma": blocks * 256 * 2},
        dram_read=4 * (m * k + k * n), dram_write=4 * m * n, efficiency=0.83,
    )  # fmt: skip


def dgemm(m: int, n: int, k: int) -> Kernel:
    """C = A B in FP64 on the CUDA cores."""
    return Kernel(
        "dgemm_kernel(double *, const double *, const double *, int, int, int)", (m // 64, n // 64, 1), (16, 16, 1),
        opcodes={"dfma": m * n * k, "dmul": m * n, "dadd": 0},
        dram_read=8 * (m * k + k * n), dram_write=8 * m * n, efficiency=0.71,
    )  # fmt: skip


def tensor_gemm(m: int, n: int, k: int) -> Kernel:
    """C = A B in BF16 on the tensor cores, followed by a ReLU with one FP32 multiplication per element."""
    return Kernel(
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x256_32x3_tn_align8>(T1::Params)",
        (m // 128, n // 256, 1), (256, 1, 1),
        opcodes={"ffma": 0, "fadd": 0, "fmul": m * n},
        tensor={"bf16_dst_fp32": 2 * m * n * k},
        dram_read=2 * (m * k + k * n), dram_write=2 * m * n, efficiency=0.77,
    )  # fmt: skip


def relu(elements: int) -> Kernel:
    """y = max(x, 0), without floating-point operations, since comparisons do not count."""
    return Kernel(
        "void at::native::vectorized_elementwise_kernel<4, at::native::relu_kernel(at::TensorIteratorBase &)::"
        "[lambda(float) (instance 1)], std::array<char *, 2>>(int, T2, T3)",
        (elements // 512, 1, 1), (128, 1, 1), opcodes={"ffma": 0, "fadd": 0, "fmul": 0},
        dram_read=4 * elements, dram_write=4 * elements, efficiency=0.91,
    )  # fmt: skip


def triad(elements: int) -> Kernel:
    """a = b + s c in FP64: one fused multiply-add and 24 bytes per element."""
    return Kernel(
        "triad(double *, const double *, const double *, double, int)", (elements // 256, 1, 1), (256, 1, 1),
        opcodes={"dfma": elements, "dadd": 0, "dmul": 0},
        dram_read=16 * elements, dram_write=8 * elements, efficiency=0.88,
    )  # fmt: skip


def softmax(rows: int, columns: int) -> Kernel:
    """Softmax of each row: a subtraction, an addition and a multiplication per element; exp is not counted."""
    elements = rows * columns
    return Kernel(
        "void softmax_warp_forward<float, float, float, 10, false, false>(T2 *, const T1 *, int, int, int)",
        (rows // 4, 1, 1), (32, 4, 1),
        opcodes={"fadd": 2 * elements, "fmul": elements, "ffma": 0},
        dram_read=4 * elements, dram_write=4 * elements, efficiency=0.64,
    )  # fmt: skip


def step() -> list[Kernel]:
    """A small training step: every kernel above, some of them several times."""
    return [
        relu(1 << 22),
        sgemm(2048, 2048, 1024),
        tensor_gemm(4096, 4096, 4096),
        softmax(8192, 1024),
        tensor_gemm(4096, 4096, 4096),
        relu(1 << 22),
        triad(1 << 23),
        dgemm(1024, 1024, 1024),
    ]
