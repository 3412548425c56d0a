"""What a kernel takes of an SM and which code it is, as its compiler decided; None where a source does not say."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Spills:
    """Bytes that a thread stores to and loads from its stack for want of registers, each instruction counted once.

    `offsets` are those of the instructions from the kernel's first, as far as the source has them.
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

    `name` is mangled, as in the binary. `stack_bytes` is the frame of the kernel itself. `shared_bytes` is static and
    without the driver's share. `max_threads` are those of `__launch_bounds__`, `required_threads` of reqntid, by
    dimension; `register_limit` is the most registers that the compiler could take. `code_digest` is the same for equal
    machine code. `toolkit` is the CUDA version of the compiler as "12.9". `threads` and `dynamic_shared_bytes` are
    known where a compiler's metadata lie beside the code.
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
    """A kernel as PTX, which a driver compiles where no cubin fits; bounds as its source states them."""

    name: str
    target: str
    max_threads: tuple[int, int, int] | None = None
    required_threads: tuple[int, int, int] | None = None
    min_blocks: int | None = None
