"""Matrix products and convolutions with analytically known FLOPs, for checking counters.

    gemm:M,N,K,dtype[,batch=B][,epilogue=bias|relu|gelu]          D = act(A @ B + bias); also gemm:MxNxK,dtype
    conv:N,C,H,W,K,R,S,dtype[,stride=T][,padding=P][,groups=G]    K filters of R x S over N images of C x H x W

`gemms` and `convs` are suites of many kernels, each a module of its own. True FLOPs are those of the contraction in one
forward pass, with a multiply-add as 2 and without the epilogue; for int8 they are integer operations. Operands are
random, of the type in the target's name, and parameters of the module, so that a backward pass computes the gradients
of both. torch is imported only when a target is built.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.workload_spec import Workload

TYPES = {
    "fp64": "float64", "fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16", "int8": "int8",
    "fp8": "float8_e4m3fn",
}  # fmt: skip
WITHOUT_GRADIENTS = ("int8", "fp8")
EPILOGUES = ("bias", "relu", "gelu")
MIXED = "mixed"
"""The dtype of a suite."""

LEAST_COMPUTE_CAPABILITY = {"int8": (7, 5), "bf16": (8, 0), "tf32": (8, 0), "fp8": (8, 9)}
"""The first compute capability with tensor cores of that type (CUDA C++ Programming Guide, "Compute Capabilities")."""

LARGEST_ON_A_CPU, LARGEST_FP8_ON_A_CPU = 2**34, 2**27
"""FLOPs of the largest kernel that a suite runs on a CPU, to keep it within seconds. PyTorch 2.13 multiplies fp8 on a
CPU at 0.06 GFLOP/s."""


@dataclass(frozen=True)
class Gemm:
    """`batch` products of an [m, k] and a [k, n] matrix."""

    m: int
    n: int
    k: int
    dtype: str
    batch: int = 1
    epilogue: str = ""

    @property
    def name(self) -> str:
        """The module's name, such as gemm_4096x4096x4096_bf16."""
        extra = (f"batch{self.batch}" if self.batch > 1 else "", self.epilogue)
        return "_".join(part for part in (f"gemm_{self.m}x{self.n}x{self.k}_{self.dtype}", *extra) if part)

    @property
    def flops(self) -> int:
        """2 x m x n x k x batch, in FLOP."""
        return 2 * self.m * self.n * self.k * self.batch


@dataclass(frozen=True)
class Convolution:
    """`filters` of shape [channels / groups, *kernel], applied to [images, channels, height, width]."""

    images: int
    channels: int
    height: int
    width: int
    filters: int
    kernel: tuple[int, int]
    dtype: str
    stride: int = 1
    padding: int = 0
    groups: int = 1

    @property
    def name(self) -> str:
        """The module's name, such as conv_32x64x56x56_64x3x3_bf16_padding1."""
        size = (
            f"{self.images}x{self.channels}x{self.height}x{self.width}_{self.filters}x{self.kernel[0]}x{self.kernel[1]}"
        )
        extra = {"stride": (self.stride, 1), "padding": (self.padding, 0), "groups": (self.groups, 1)}
        return "_".join(
            [f"conv_{size}_{self.dtype}", *(f"{key}{n}" for key, (n, usual) in extra.items() if n != usual)]
        )

    @property
    def output(self) -> tuple[int, int]:
        """Height and width of the output, in pixels."""
        padded = (self.height + 2 * self.padding, self.width + 2 * self.padding)
        high, wide = ((size - window) // self.stride + 1 for size, window in zip(padded, self.kernel, strict=True))
        return high, wide

    @property
    def flops(self) -> int:
        """2 x images x filters x output height x width x (channels / groups) x kernel height x width, in FLOP."""
        high, wide = self.output
        window = self.channels // self.groups * self.kernel[0] * self.kernel[1]
        return 2 * self.images * self.filters * high * wide * window


Work = Gemm | Convolution


@dataclass
class KnownWork:
    """A built target: `true_flops` maps module -> FLOPs of one forward pass."""

    name: str
    model: Any
    dtype: str
    true_flops: dict[str, int]
    notes: list[str] = field(default_factory=list)


# -------------------------------------------------------------------------------------------------------- suites


def _gemms() -> tuple[Work, ...]:
    floating, tensor = ("fp32", "tf32", "fp16", "bf16"), ("tf32", "fp16", "bf16", "int8", "fp8")
    return (
        *(Gemm(1024, 1024, 1024, dtype) for dtype in TYPES),
        *(Gemm(4096, 4096, 4096, dtype) for dtype in TYPES),
        *(Gemm(8192, 8192, 8192, dtype) for dtype in tensor),
        *(Gemm(32, 4096, 4096, dtype) for dtype in (*floating, "int8", "fp8")),
        *(Gemm(1024, 1024, 1024, dtype, batch=8) for dtype in floating),
        *(Gemm(2048, 2048, 2048, dtype, epilogue=epilogue) for dtype in ("fp16", "bf16") for epilogue in EPILOGUES),
        Gemm(2048, 2048, 2048, "fp8", epilogue="bias"),
    )


def _convs() -> tuple[Work, ...]:
    """Layers of ResNets, ResNeXts and MobileNets at batch 32: first, 1x1, 3x3, strided, grouped and depthwise."""
    return tuple(
        Convolution(32, channels, size, size, filters, (window, window), dtype, stride, window // 2, groups)
        for dtype in ("fp32", "tf32", "fp16", "bf16")
        for channels, size, filters, window, stride, groups in (
            (3, 224, 64, 7, 2, 1), (256, 56, 64, 1, 1, 1), (64, 56, 64, 3, 1, 1), (128, 56, 128, 3, 2, 1),
            (512, 7, 512, 3, 1, 1), (128, 56, 128, 3, 1, 32), (128, 56, 128, 3, 1, 128),
        )
    )  # fmt: skip


SUITES: dict[str, Callable[[], tuple[Work, ...]]] = {"gemms": _gemms, "convs": _convs}


# ------------------------------------------------------------------------------------------- parsing targets


def is_known_work(target: str) -> bool:
    """True if `target` names a kernel or suite of this module."""
    return target in SUITES or target.startswith(("gemm:", "conv:"))


def own_dtype(target: str) -> str | None:
    """The dtype in the target's name, `mixed` for a suite; None if --dtype sets it.

    Raises `WrongUsage` for a malformed gemm: or conv: target.
    """
    if not is_known_work(target):
        return None
    return MIXED if target in SUITES else parsed(target).dtype


def default_phases(target: str) -> tuple[str, ...]:
    """Default phases of a target: forward for kernels of this module, forward and backward for models."""
    return ("forward",) if is_known_work(target) else ("forward", "backward")


def parsed(target: str) -> Work:
    """Parse `gemm:...` or `conv:...`, whose sizes may be joined by x. Raises `WrongUsage` if the text is malformed."""
    kind, _, text = target.partition(":")
    first, *others = (part.strip() for part in text.split(","))
    parts = [*first.split("x"), *others]
    sizes = 3 if kind == "gemm" else 7
    options = dict(part.split("=", 1) for part in parts[sizes + 1 :] if "=" in part)
    if len(parts) <= sizes or len(options) != len(parts) - sizes - 1:
        raise _wrong(target, f"it needs {sizes} sizes and a type, and then options as NAME=VALUE, each once.")
    numbers = [_whole(target, part, least=1) for part in parts[:sizes]]
    dtype = parts[sizes]
    if dtype not in TYPES:
        raise _wrong(target, f"{dtype} is not one of the types {', '.join(TYPES)}.")
    return _gemm(target, numbers, dtype, options) if kind == "gemm" else _convolution(target, numbers, dtype, options)


def with_type(target: str, dtype: str) -> str:
    """`target` with this type appended if it is a product without a type: gemm:64x64x64."""
    sizes = re.fullmatch(r"gemm:\d+[x,]\d+[x,]\d+", target)
    return f"{target},{dtype}" if sizes else target


def _gemm(target: str, sizes: Sequence[int], dtype: str, options: dict[str, str]) -> Gemm:
    _known_options(target, options, ("batch", "epilogue"))
    epilogue = options.get("epilogue", "")
    if epilogue and epilogue not in EPILOGUES:
        raise _wrong(target, f"an epilogue is one of {', '.join(EPILOGUES)}.")
    m, n, k = sizes
    gemm = Gemm(m, n, k, dtype, _whole(target, options.get("batch", "1"), least=1), epilogue)
    if dtype in WITHOUT_GRADIENTS and gemm.batch > 1:
        raise _wrong(target, f"PyTorch has no batched product of {dtype}.")
    if dtype == "int8" and epilogue:
        raise _wrong(target, "PyTorch's product of int8 takes no epilogue.")
    return gemm


def _convolution(target: str, sizes: Sequence[int], dtype: str, options: dict[str, str]) -> Convolution:
    _known_options(target, options, ("stride", "padding", "groups"))
    if dtype in WITHOUT_GRADIENTS:
        raise _wrong(target, f"PyTorch has no plain convolution of {dtype}.")
    images, channels, height, width, filters, *kernel = sizes
    stride, groups = (_whole(target, options.get(name, "1"), least=1) for name in ("stride", "groups"))
    padding = _whole(target, options.get("padding", "0"), least=0)
    convolution = Convolution(
        images, channels, height, width, filters, (kernel[0], kernel[1]), dtype, stride, padding, groups
    )
    if channels % groups or filters % groups:
        raise _wrong(target, f"{channels} channels and {filters} filters are not both a multiple of {groups} groups.")
    if min(convolution.output) < 1:
        raise _wrong(target, "its kernel is larger than the padded image.")
    return convolution


def _known_options(target: str, options: dict[str, str], known: tuple[str, ...]) -> None:
    unknown = sorted(options.keys() - set(known))
    if unknown:
        raise _wrong(target, f"{unknown[0]} is not one of its options ({', '.join(known)}).")


def _whole(target: str, text: str, *, least: int) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise _wrong(target, f"{text or 'an empty text'} is not a whole number of at least {least}.")
    return int(text)


def _wrong(target: str, why: str) -> WrongUsage:
    return WrongUsage(
        f"{target} is not a product or convolution that can be run: {why}",
        advice="Write gemm:M,N,K,dtype, as gemm:4096,4096,4096,bf16, or conv:N,C,H,W,K,R,S,dtype.",
    )


# ------------------------------------------------------------------------------------------------------- building


def build_known_work(workload: Workload, device: str) -> KnownWork:
    """Build a target's kernel or suite for `device`, with operands on the current default device.

    Raises `WrongUsage` for a backward pass of types without gradients and for options that contradict the target,
    `NcuBenchError` if `device` cannot run the type.
    """
    _refuse_contradictions(workload)
    if workload.target in SUITES:
        return _suite(workload, device)
    work = parsed(workload.target)
    if workload.wants_backward and work.dtype in WITHOUT_GRADIENTS:
        raise WrongUsage(f"PyTorch has no gradients of {work.dtype} products.", advice="Use --phase forward.")
    reason = why_not_here(work, device)
    if reason:
        raise NcuBenchError(f"{work.name} cannot run here: {reason}.", advice="Use another type, size or device.")
    return KnownWork(work.name, _operation(work), work.dtype, {work.name: work.flops})


def _refuse_contradictions(workload: Workload) -> None:
    if workload.batch_size > 1:
        raise WrongUsage(
            f"{workload.target} has its sizes in its name, and --batch-size says another.",
            advice="Leave --batch-size out; a gemm takes batch=B and a convolution's N is its batch.",
        )
    if workload.autocast:
        raise WrongUsage(
            f"{workload.target} has its type in its name, and --autocast would choose another.",
            advice="Leave --autocast out.",
        )


def _suite(workload: Workload, device: str) -> KnownWork:
    name = workload.target
    if workload.wants_backward:
        raise WrongUsage(
            f"The suite {name} runs forward only: some of its types have no gradients, or need "
            "a global switch of PyTorch.",
            advice="Use --phase forward, or a single gemm: or conv: target for a backward pass.",
        )
    running: list[Work] = []
    left_out: dict[str, list[str]] = {}
    for work in SUITES[name]():
        reason = why_not_here(work, device) or _why_not_in_a_suite(work, device)
        if reason:
            left_out.setdefault(reason, []).append(work.name)
        else:
            running.append(work)
    notes = [f"{name} leaves out {', '.join(names)}: {reason}" for reason, names in left_out.items()]
    true_flops = {f"{name}.{work.name}": work.flops for work in running}
    return KnownWork(name, _sequence(running), MIXED, true_flops, notes)


def why_not_here(work: Work, device: str) -> str:
    """Why `device` (cpu or cuda) cannot run the kernel; "" if it can, as far as is known without a GPU."""
    if device == "cpu":
        return _why_not_on_this_cpu(work)
    import torch

    if torch.cuda.is_available():
        has, needs = torch.cuda.get_device_capability(), LEAST_COMPUTE_CAPABILITY.get(work.dtype, (0, 0))
        if has < needs:
            return f"{work.dtype} needs compute capability {needs[0]}.{needs[1]}, and this device has {has[0]}.{has[1]}"
    if not isinstance(work, Gemm):
        return ""
    if work.dtype == "int8" and (work.m <= 16 or work.n % 8 or work.k % 8):
        return "on a GPU PyTorch's product of int8 takes M above 16, and N and K that are multiples of 8"
    if work.dtype == "fp8" and (work.n % 16 or work.k % 16):
        return "on a GPU PyTorch's product of fp8 takes N and K that are multiples of 16"
    return ""


def _why_not_on_this_cpu(work: Work) -> str:
    """Try a small product, because support depends on the version of PyTorch."""
    if not isinstance(work, Gemm):
        return ""
    try:
        _operation(Gemm(32, 32, 32, work.dtype, epilogue=work.epilogue))()
    # An older PyTorch lacks the operator, or has no kernel for this type or processor: a RuntimeError or subclass.
    except (AttributeError, RuntimeError) as error:
        return f"this PyTorch does not multiply {work.dtype} on a CPU ({str(error).splitlines()[0]})"
    return ""


def _why_not_in_a_suite(work: Work, device: str) -> str:
    if device != "cpu":
        return ""
    if work.dtype == "tf32":
        return "TF32 is a type of GPUs"
    largest = LARGEST_FP8_ON_A_CPU if work.dtype == "fp8" else LARGEST_ON_A_CPU
    return "it would take long on a CPU" if work.flops > largest else ""


def _operation(work: Work) -> Any:
    """A module without inputs; its parameters are the operands."""
    from torch import nn

    operands, compute = _product(work) if isinstance(work, Gemm) else _filtering(work)

    class Operation(nn.Module):  # type: ignore[misc]  # torch is untyped without its extra
        """One product or convolution."""

        def __init__(self) -> None:
            super().__init__()
            for name, operand in operands.items():
                gradients = work.dtype not in WITHOUT_GRADIENTS
                self.register_parameter(name, nn.Parameter(operand, requires_grad=gradients))

        def forward(self) -> Any:
            return compute(*self.parameters())

    return Operation()


def _sequence(works: Sequence[Work]) -> Any:
    """A module that runs the kernels in order. It returns every output, so that none is optimised away."""
    from torch import nn

    class Suite(nn.Module):  # type: ignore[misc]
        """Independent kernels, run one after the other."""

        def forward(self) -> Any:
            outputs = []
            for work, operation in zip(works, self.children(), strict=True):
                with _tf32(work.dtype == "tf32"):
                    outputs.append(operation())
            return tuple(outputs)

    suite = Suite()
    for work in works:
        suite.add_module(work.name, _operation(work))
    return suite


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    """Set PyTorch's process-wide switch for TF32 tensor cores within the block."""
    import torch

    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def _random(shape: tuple[int, ...], dtype: str) -> Any:
    import torch

    if dtype == "int8":
        return torch.randint(-128, 128, shape, dtype=torch.int8)
    wanted = getattr(torch, TYPES[dtype])
    return torch.randn(shape).to(wanted) if dtype == "fp8" else torch.randn(shape, dtype=wanted)


def _product(gemm: Gemm) -> tuple[dict[str, Any], Callable[..., Any]]:
    """Operands of a product, and the function that computes it. int8 and fp8 kernels need B column-major."""
    import torch

    activation = _activation(gemm.epilogue)
    if gemm.dtype in WITHOUT_GRADIENTS:
        operands = {"a": _random((gemm.m, gemm.k), gemm.dtype), "b": _random((gemm.n, gemm.k), gemm.dtype)}
        if gemm.dtype == "int8":
            return operands, lambda a, b: torch._int_mm(a, b.t())
        operands["scale"] = torch.ones(())
        if gemm.epilogue:
            operands["bias"] = _random((gemm.n,), "bf16")
        return operands, lambda a, b, scale, bias=None: activation(
            torch._scaled_mm(a, b.t(), scale_a=scale, scale_b=scale, bias=bias, out_dtype=torch.bfloat16)
        )
    batch = (gemm.batch,) if gemm.batch > 1 else ()
    operands = {
        "a": _random((*batch, gemm.m, gemm.k), gemm.dtype),
        "b": _random((*batch, gemm.k, gemm.n), gemm.dtype),
    }
    if not gemm.epilogue:
        return operands, torch.bmm if batch else torch.mm
    operands["bias"] = _random((gemm.n,), gemm.dtype)
    add_product = torch.baddbmm if batch else torch.addmm
    return operands, lambda a, b, bias: activation(add_product(bias, a, b))


def _activation(epilogue: str) -> Callable[[Any], Any]:
    import torch

    functions: dict[str, Callable[[Any], Any]] = {"relu": torch.relu, "gelu": torch.nn.functional.gelu}
    return functions.get(epilogue, lambda value: value)


def _filtering(work: Convolution) -> tuple[dict[str, Any], Callable[..., Any]]:
    import torch

    operands = {
        "images": _random((work.images, work.channels, work.height, work.width), work.dtype),
        "weight": _random((work.filters, work.channels // work.groups, *work.kernel), work.dtype),
    }
    return operands, lambda images, weight: torch.nn.functional.conv2d(
        images, weight, stride=work.stride, padding=work.padding, groups=work.groups
    )
