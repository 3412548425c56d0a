"""NVIDIA's libraries whose licence forbids disassembly: only the resources of their kernels are shown.

Source: "CUDA Toolkit End User License Agreement", 1.2 (reverse engineer, decompile, disassemble), and the agreements of
cuDNN, cuTENSOR and TensorRT. NCCL, CUB, CUTLASS and CCCL are under open licences.
"""

from __future__ import annotations

import re
from pathlib import Path

_LIBRARIES = {
    "cublas": "cuBLAS", "cudnn": "cuDNN", "cufft": "cuFFT", "curand": "cuRAND", "cusolver": "cuSOLVER",
    "cusparse": "cuSPARSE", "cutensor": "cuTENSOR", "npp": "NPP", "nvjpeg": "nvJPEG", "nvinfer": "TensorRT",
    "cudss": "cuDSS", "nvshmem": "NVSHMEM", "nvtiff": "nvTIFF", "nvcomp": "nvCOMP", "cudla": "cuDLA",
}  # fmt: skip
"""Beginning of a file name, after `lib` -> name of the library."""
_FILE = re.compile(rf"(?:lib)?({'|'.join(_LIBRARIES)})\w*(?:[.-].*)?$")
_KERNELS = re.compile(
    r"(?:maxwell|volta|turing|ampere)_(?:\w+_)?[sdczhi]?gemm_\d+x\d+|sm\d+_xmma_|nvjet_|cublas|cudnn|cusparse|cusolver"
    r"|_ZN(?:\d+cublas|5cudnn|8cusparse|8cusolver)"
)
"""Kernel names of these libraries, which may be linked into a program or another library."""


def library_of(path: str, kernel: str = "") -> str:
    """The library whose licence forbids disassembly, by file name or mangled kernel name; "" if there is none."""
    found = _FILE.match(Path(path).name.lower())
    if found:
        return _LIBRARIES[found[1]]
    return "a library of NVIDIA" if kernel and _KERNELS.match(kernel) else ""
