"""Resources and machine code of a compiled kernel; None where a source does not say."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Spills:
    """Bytes per thread of spill stores and spill loads, each instruction counted once.

    `offsets` are the byte offsets of spilling instructions from the kernel's beginning; () if the source lacks them.
    """

    store_bytes: int
    load_bytes: int
    offsets: tuple[int, ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes stored and loaded."""
        return self.store_bytes + self.load_bytes


@dataclass(frozen=True)
class KernelResources:
    """A kernel compiled for one architecture, such as "sm_90".

    `name` is mangled. `registers` and `stack_bytes`, the kernel's own frame, are per thread. `shared_bytes` is static
    shared memory per block without the driver's share. `max_threads` (`__launch_bounds__`) and `required_threads`
    (reqntid) are threads per block by dimension. `register_limit` is the limit per thread set for the compiler.
    `code_digest` is equal for equal machine code, "" if unknown. `toolkit` is the compiler's CUDA version, such as
    "12.9". `threads` per block and `dynamic_shared_bytes` come from a compiler's metadata file beside the code.
    """

    name: str
    architecture: str
    registers: int | None = None
    stack_bytes: int | None = None
    spills: Spills | None = None
    shared_bytes: int | None = None
    barriers: int | None = None
    max_threads: tuple[int, int, int] | None = None
    required_threads: tuple[int, int, int] | None = None
    register_limit: int | None = None
    parameter_bytes: int | None = None
    code_bytes: int | None = None
    code_digest: str = ""
    toolkit: str = ""
    threads: int | None = None
    dynamic_shared_bytes: int | None = None


@dataclass(frozen=True)
class PtxKernel:
    """A PTX kernel for a `target` such as "sm_90"; bounds are threads per block by dimension and blocks per SM.

    The driver compiles PTX if no cubin fits the GPU.
    """

    name: str
    target: str
    max_threads: tuple[int, int, int] | None = None
    required_threads: tuple[int, int, int] | None = None
    min_blocks: int | None = None
