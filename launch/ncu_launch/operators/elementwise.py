"""Element-wise operators, reductions, norms, softmax, losses, FFTs, optimizers: operations per element, and bytes once.

An arithmetic operation, a comparison and a function call (exp, sqrt, erf) count as 1 each, as in the operator's
definition in PyTorch's documentation. A GPU takes more instructions for some functions and fuses a multiply with an
add, so counters of such kernels differ; these kernels are bound by their bytes. Operations on integers and booleans are
not FLOPs. The random numbers of dropout are not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf, log2, prod

from ncu_launch.files.toml_tables import table_beside
from ncu_launch.operators.calls import (
    Call,
    Formula,
    Shape,
    Tensor,
    UnknownWork,
    broadcast,
    bytes_at,
    of_floats,
    promoted,
)

DEFINITION = "operations per element of the definition in PyTorch's documentation"
_NAMES = table_beside(__file__, "elementwise")
_KEEPS_INTEGERS = frozenset(_NAMES["keeps_integers"].split())
"""Element-wise operators whose result on integers is an integer; the others give float32."""
_PARTS = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
"""Complex type -> type of its parts, and of absolute values."""


Counted = dict[str, int]


def _counts(text: str) -> Counted:
    words = text.split()
    return {name: int(count) for name, count in zip(words[::2], words[1::2], strict=True)}


def _operands(call: Call, most: int) -> list[Tensor]:
    """The tensors among the first `most` arguments, at least one."""
    found = [call.tensor(place) for place in range(most) if call.is_tensor(place)]
    if not found:
        raise UnknownWork("a tensor")
    return found


def _elements(call: Call, most: int) -> int:
    return prod(broadcast([one.shape for one in _operands(call, most)]))


def _result_type(call: Call, name: str, tensors: list[Tensor], operands: int) -> str:
    """The type of an element-wise result; Python numbers among the operands count as 0-dimensional tensors."""
    numbers = [Tensor((), "float64") for one in call.arguments[:operands] if isinstance(one, float)]
    kind = promoted([*tensors, *numbers])
    if name == "abs":
        return _PARTS.get(kind, kind)
    return "float32" if name not in _KEEPS_INTEGERS and not Tensor((), kind).is_float else kind


def _pointwise(name: str, operands: int, operations: int) -> Formula:
    """`operations` for each element of the broadcast operands, the tensors among the first `operands` arguments.

    An operator whose name ends in _ overwrites its first operand.
    """

    def flops(call: Call) -> float:
        return of_floats(call, float(operations * _elements(call, operands)))

    def read(call: Call) -> float:
        return float(sum(one.bytes for one in _operands(call, operands)))

    def written(call: Call) -> float:
        tensors = _operands(call, operands)
        kind = tensors[0].dtype if name.endswith("_") else _result_type(call, name, tensors, max(operands, 2))
        return float(Tensor(broadcast([one.shape for one in tensors]), kind).bytes)

    return Formula(flops, read, written, False, DEFINITION)


def _comparison() -> Formula:
    base = _pointwise("", 2, 0)
    return base._replace(written=lambda call: float(_elements(call, 2)))


def _where() -> Formula:
    def written(call: Call) -> float:
        tensors = _operands(call, 3)
        return float(Tensor(broadcast([one.shape for one in tensors]), promoted(tensors[1:] or tensors)).bytes)

    return _pointwise("", 3, 0)._replace(written=written)


# ------------------------------------------------------------------------------------- of one tensor, by its elements


def _own_type(call: Call) -> Tensor:
    return call.tensor(0)


def of_first(
    operations: float,
    *,
    result: Callable[[Call], Tensor] = _own_type,
    read: tuple[int, ...] = (0,),
    counted: int = 0,
    also_written: Callable[[Call], float] = lambda call: 0.0,
) -> Formula:
    """`operations` per element of the tensor at `counted`. Reads the tensors at `read`; only the first must be given.

    `result` describes the tensor that is written, by default like argument 0; `also_written` returns further bytes.
    """

    def flops(call: Call) -> float:
        return of_floats(call, operations * call.tensor(counted).elements)

    def reading(call: Call) -> float:
        return float(call.tensor(read[0]).bytes + call.given_bytes(read[1:]))

    return Formula(flops, reading, lambda call: float(result(call).bytes) + also_written(call), False, DEFINITION)


def _reduced(call: Call, *, dims: int = 1) -> Tensor:
    """The result of a reduction over the dimensions listed at position `dims`, over all if none are listed."""
    source = call.tensor(0)
    named = call.value(dims) if len(call.arguments) > dims and not call.is_tensor(dims) else None
    listed = [named] if isinstance(named, int) and not isinstance(named, bool) else named
    if not listed or isinstance(listed, bool):  # the full variance has `unbiased` at this position
        return Tensor((), source.dtype)
    if not isinstance(listed, (list, tuple)):
        raise UnknownWork("the dimensions of the reduction")
    gone = {dim % max(len(source.shape), 1) for dim in listed}
    return Tensor(tuple(size for place, size in enumerate(source.shape) if place not in gone), source.dtype)


def _reduced_to(kind: str) -> Callable[[Call], Tensor]:
    return lambda call: _reduced(call)._replace(dtype=kind)


def _summed(kind: Tensor) -> Tensor:
    """The result of a sum, given with its operand's type: integers and booleans become int64."""
    return kind if kind.is_float else kind._replace(dtype="int64")


def _sum(call: Call) -> Tensor:
    return _summed(_reduced(call))


def _mean_loss(call: Call) -> Tensor:
    """The result of a loss: one number, or the broadcast shape if `reduction`, after input and target, is 0."""
    shape = broadcast([call.tensor(0).shape, call.tensor(1).shape])
    return Tensor(() if call.value(2, 1) else shape, promoted(_operands(call, 2)))


def _as_index(call: Call) -> float:
    return float(_reduced(call)._replace(dtype="int64").bytes)


def _statistics(call: Call) -> float:
    """Bytes of mean and reciprocal deviation of each row of a layer norm, as float32."""
    source, normalized = call.tensor(0), call.value(1)
    if not isinstance(normalized, (list, tuple)):
        raise UnknownWork("the normalised shape")
    return 2.0 * 4 * source.elements / max(prod(normalized), 1)


# -------------------------------------------------------------------------------------------- lists of tensors at once


def _foreach(operations: int, lists: int, name: str) -> Formula:
    """`operations` per element of the first of `lists` lists of tensors; a name that ends in _ overwrites that list."""

    def flops(call: Call) -> float:
        return of_floats(call, float(operations * sum(one.elements for one in call.tensors(0))))

    def read(call: Call) -> float:
        is_copy = name == "copy_"  # overwrites its first list without reading it
        found = [] if is_copy else list(call.tensors(0))
        for place in range(1, lists):
            given = call.value(place)  # a list of tensors, or of numbers, or one number
            found += [one for one in given if isinstance(one, Tensor)] if isinstance(given, (tuple, list)) else []
        return float(sum(one.bytes for one in found))

    return Formula(flops, read, lambda call: float(sum(one.bytes for one in call.tensors(0))), False, DEFINITION)


def _foreach_norm() -> Formula:
    """Norms of a list of tensors: a square and an addition per element, and one number written per tensor."""

    def flops(call: Call) -> float:
        return of_floats(call, 2.0 * sum(one.elements for one in call.tensors(0)))

    def written(call: Call) -> float:
        return float(sum(Tensor((), one.dtype).bytes for one in call.tensors(0)))

    return _foreach(2, 1, "norm")._replace(flops=flops, written=written)


def _fused_optimizer(operations: Callable[[Call], int], states: int) -> Formula:
    """Parameters, gradients and `states` further lists: all are read, and all except the gradients are written.

    `operations` is per parameter. An empty list belongs to a state that the optimizer does not use.
    """

    def flops(call: Call) -> float:
        return float(operations(call) * sum(one.elements for one in call.tensors(0)))

    def moved(call: Call, places: Iterable[int]) -> float:
        listed = [call.tensors(place) for place in places if call.arguments[place] not in ((), [])]
        return float(sum(one.bytes for tensors in listed for one in tensors))

    return Formula(
        flops,
        lambda call: moved(call, range(2 + states)),
        lambda call: moved(call, (0, *range(2, 2 + states))),
        False,
        "operations per parameter of the definition in the documentation of torch.optim",
    )


def _adam(call: Call) -> int:
    """Operations per parameter: 3 for the first moment, 4 for the second, 3 for the denominator, 3 for the step.

    AdamW adds 1 for the decay.
    """
    return 14 if "adamw" in call.name else 13


def _sgd(call: Call) -> int:
    """Operations per parameter: 2 for the step, 2 for a decay, 3 for momentum and 2 more for Nesterov's."""
    decay, momentum, nesterov = call.value(3), call.value(4), call.value(7)
    return 2 + 2 * bool(decay) + 3 * bool(momentum) + 2 * bool(momentum and nesterov)


def _adagrad(call: Call) -> int:
    """Operations per parameter: 2 for the sum of squares, 2 for the denominator, 3 for the step; 2 for a decay."""
    return 7 + 2 * bool(call.value(6))


# -------------------------------------------------------------------------------------- losses, and what has an order


def _picked_losses(*, backward: bool) -> Formula:
    """Negative log likelihood: reads one number per row. The backward pass writes the whole gradient, mostly zeros."""
    place = 1 if backward else 0

    def flops(call: Call) -> float:
        return of_floats(call, (1.0 if backward else 2.0) * call.tensor(place + 1).elements)

    def read(call: Call) -> float:
        target = call.tensor(place + 1)
        picked = call.tensor(0).bytes if backward else Tensor(target.shape, call.tensor(0).dtype).bytes
        return float(picked + target.bytes)

    def written(call: Call) -> float:
        if backward:
            return float(call.tensor(1).bytes)
        target, kind = call.tensor(1), call.tensor(0).dtype
        return float(Tensor(() if call.value(3, 1) else target.shape, kind).bytes + Tensor((), kind).bytes)

    return Formula(flops, read, written, False, DEFINITION)


def _unknown(call: Call) -> float:
    raise UnknownWork("how often elements are compared")


def _ordering(dim: int, count: int | None = None) -> Formula:
    """Sorted values and their indices; the number of comparisons is unknown, so FLOPs are too.

    `dim`: position of the dimension. `count`: position of the number of values to keep along it, None for all.
    """

    def written(call: Call) -> float:
        source = call.tensor(0)
        sizes = list(source.shape)
        if count is not None and sizes:
            sizes[call.value(dim, -1)] = call.value(count)
        return float(Tensor(tuple(sizes), source.dtype).bytes + Tensor(tuple(sizes), "int64").bytes)

    return Formula(_unknown, lambda call: float(call.tensor(0).bytes), written, False, DEFINITION)


def _halved(call: Call, *, dim: int = 1) -> Tensor:
    source, which = call.tensor(0), call.value(dim, -1)
    sizes = list(source.shape)
    sizes[which] //= 2
    return Tensor(tuple(sizes), source.dtype)


# ------------------------------------------------------------------- Fourier transforms, distances, cells of RNNs


FOURIER = "an estimate, the customary 5 n log2 n per transform of n complex numbers, half of it of real ones (benchFFT)"
_COMPLEX = {of_part: of_number for of_number, of_part in _PARTS.items()}


def _fourier(
    operations: float, result: Callable[[Call], Tensor], points: Callable[[Call], Tensor] = _own_type
) -> Formula:
    """Transforms of n points over the dimensions in argument 1: `operations` x log2(n) per element of `points`.

    `points`: the transformed tensor; the result for a transform to real numbers.
    """

    def flops(call: Call) -> float:
        found, dims = points(call), call.value(1)
        each = prod(found.shape[dim] for dim in dims)
        return operations * found.elements * log2(each)

    return Formula(flops, bytes_at(0), lambda call: float(result(call).bytes), False, FOURIER)


def _last_resized(call: Call, kind: dict[str, str], size: Callable[[int], int]) -> Tensor:
    """The input with its type mapped by `kind`, and the last transformed dimension resized by `size`.

    Raises `UnknownWork` for other types.
    """
    source, last = call.tensor(0), call.value(1)[-1]
    if source.dtype not in kind:
        raise UnknownWork("the type of the result")
    sizes = list(source.shape)
    sizes[last] = size(sizes[last])
    return Tensor(tuple(sizes), kind[source.dtype])


def _spectrum(call: Call) -> Tensor:
    is_half = call.value(3)
    return _last_resized(call, _COMPLEX, lambda size: size // 2 + 1 if is_half else size)


def _from_spectrum(call: Call) -> Tensor:
    return _last_resized(call, _PARTS, lambda size: int(call.value(3)))


def _distances(norm: int, result: Callable[[Call], Shape]) -> Formula:
    """Distances of rows, by the norm given at position `norm`: a difference, its size or square, and a sum per element.

    Norms other than 0, 1, 2 and infinity add a power per element; norms other than 0, 1 and infinity a root per
    distance.
    """

    def flops(call: Call) -> float:
        order, count = call.value(norm, 2.0), prod(result(call))
        each = 3 if order in (0, 1, 2, inf) else 4
        return of_floats(call, float(count * (each * call.tensor(0).shape[-1] + (order not in (0, 1, inf)))))

    def written(call: Call) -> float:
        return float(Tensor(result(call), call.tensor(0).dtype).bytes)

    return Formula(flops, lambda call: float(call.given_bytes(range(norm))), written, False, DEFINITION)


def _each_with_each(call: Call) -> Shape:
    """Shape of the distances between [..., rows, depth] and [..., others, depth]."""
    left, right = call.tensor(0).shape, call.tensor(1).shape
    if left[-1] != right[-1]:
        raise UnknownWork("rows that fit each other")
    return (*broadcast([left[:-2], right[:-2]]), left[-2], right[-2])


def _pairs(call: Call) -> Shape:
    rows = call.tensor(0).shape[0]
    return (rows * (rows - 1) // 2,)


def _fused_cell(gates: int, operations: int, kept: int) -> Formula:
    """FLOPs of an RNN cell without its matrix products: `operations` per element of the hidden state.

    A sigmoid counts 4. Biases, if given, are added to both products of each of `gates` gates. `kept` numbers are
    written per element: the new states, and what the backward pass needs.
    """

    def flops(call: Call) -> float:
        biased = 2 * gates if call.is_tensor(3) else 0
        return of_floats(call, float((operations + biased) * call.tensor(2).elements))

    return Formula(
        flops, lambda call: bytes_at(0, 1, 2)(call) + call.given_bytes((3, 4)),
        lambda call: float(kept * call.tensor(2).bytes), False, DEFINITION,
    )  # fmt: skip


def _given(place: int, times: int = 1) -> Callable[[Call], float]:
    """A function that returns `times` x the bytes of an optional tensor, as for gradients of a weight and a bias."""
    return lambda call: float(times * call.given_bytes((place,)))


def _second(call: Call) -> Tensor:
    return call.tensor(1)


_BATCH_NORM = of_first(8, read=(0, 1, 2))
_BATCH_NORM_BACKWARD = of_first(13, result=_second, read=(0, 1), counted=1)

_OTHERS: dict[str, Formula] = {
    "sum": of_first(1, result=_sum),
    "mean": of_first(1, result=_reduced),
    "amax": of_first(1, result=_reduced),
    "amin": of_first(1, result=_reduced),
    "max": of_first(1, result=_reduced, also_written=lambda call: _as_index(call) if len(call.arguments) > 1 else 0.0),
    "min": of_first(1, result=_reduced, also_written=lambda call: _as_index(call) if len(call.arguments) > 1 else 0.0),
    "argmax": of_first(1, result=_reduced_to("int64")),
    "argmin": of_first(1, result=_reduced_to("int64")),
    "any": of_first(0, result=_reduced_to("bool")),
    "all": of_first(0, result=_reduced_to("bool")),
    "cumsum": of_first(1, result=lambda call: _summed(call.tensor(0))),
    "_softmax": of_first(5),
    "_log_softmax": of_first(5),
    "_softmax_backward_data": of_first(4, read=(0, 1)),
    "_log_softmax_backward_data": of_first(4, read=(0, 1)),
    "native_layer_norm": of_first(8, read=(0, 2, 3), also_written=_statistics),
    "native_layer_norm_backward": of_first(
        13,
        result=_second,
        read=(0, 1, 3, 4, 5),
        counted=1,
        also_written=lambda call: float(call.given_bytes((5, 6))),
    ),
    "native_group_norm": of_first(8, read=(0, 1, 2)),
    "_fused_rms_norm": of_first(4, read=(0, 2)),
    "native_batch_norm": _BATCH_NORM,
    "cudnn_batch_norm": _BATCH_NORM,
    "miopen_batch_norm": _BATCH_NORM,
    "_native_batch_norm_legit": _BATCH_NORM,
    "_native_batch_norm_legit_no_training": of_first(4, read=(0, 1, 2)),
    "_batch_norm_with_update": _BATCH_NORM,
    "native_batch_norm_backward": _BATCH_NORM_BACKWARD,
    "cudnn_batch_norm_backward": of_first(13, result=_own_type, read=(0, 1)),
    "batch_norm_backward": _BATCH_NORM_BACKWARD,
    "native_dropout": of_first(2, also_written=lambda call: float(call.tensor(0).elements)),
    "where": _where(),
    "linalg_vector_norm": of_first(2, result=lambda call: _reduced(call, dims=2)),
    "var": of_first(4, result=_reduced),
    "std": of_first(5, result=_reduced),
    "var_mean": of_first(4, result=_reduced, also_written=lambda call: float(_reduced(call).bytes)),
    "std_mean": of_first(5, result=_reduced, also_written=lambda call: float(_reduced(call).bytes)),
    "cumprod": of_first(1, result=lambda call: _summed(call.tensor(0))),
    "_masked_softmax": of_first(5, read=(0, 1)),
    "_transform_bias_rescale_qkv": of_first(4 / 3, read=(0, 1)),  # one bias for all, one factor for the queries
    "native_group_norm_backward": of_first(
        13, result=_second, read=(0, 1, 2, 3, 4), counted=1, also_written=_given(4, times=2)
    ),
    "_fused_rms_norm_backward": of_first(9, result=_second, read=(0, 1, 3, 4), counted=1, also_written=_given(4)),
    "miopen_batch_norm_backward": of_first(13, read=(0, 1)),
    "batch_norm_elemt": of_first(4, read=(0, 1, 2, 3, 4)),
    "glu": of_first(2.5, result=_halved),
    "glu_backward": of_first(4.5, result=_second, read=(0, 1), counted=1),
    "elu_backward": of_first(3, read=(0, 5)),
    "mse_loss": _pointwise("mse_loss", 2, 2)._replace(written=lambda call: float(_mean_loss(call).bytes)),
    "mse_loss_backward": of_first(3, result=_second, read=(0, 1, 2), counted=1),
    "nll_loss_forward": _picked_losses(backward=False),
    "nll_loss_backward": _picked_losses(backward=True),
    "nll_loss2d_forward": _picked_losses(backward=False),
    "nll_loss2d_backward": _picked_losses(backward=True),
    "_fft_r2c": _fourier(2.5, _spectrum),
    "_fft_c2r": _fourier(2.5, _from_spectrum, _from_spectrum),
    "_fft_c2c": _fourier(5, _own_type),
    "_cdist_forward": _distances(2, _each_with_each),
    "_pdist_forward": _distances(1, _pairs),
    "_thnn_fused_lstm_cell": _fused_cell(4, 22, kept=6),
    "_thnn_fused_gru_cell": _fused_cell(3, 16, kept=6),
    "sort": _ordering(1),
    "topk": _ordering(2, count=1),
    "_foreach_norm": _foreach_norm(),
    "_amp_foreach_non_finite_check_and_unscale_": _foreach(2, 1, "unscale_"),
    "_fused_adam_": _fused_optimizer(_adam, states=2),
    "_fused_adamw_": _fused_optimizer(_adam, states=2),
    "_fused_sgd_": _fused_optimizer(_sgd, states=1),
    "_fused_adagrad_": _fused_optimizer(_adagrad, states=1),
}

_WITHOUT_NAMESPACE: dict[str, Formula] = {
    **{
        name: _pointwise(name, operands, count)
        for operands, kind in enumerate(("one_operand", "two_operands", "three_operands"), 1)
        for name, count in _counts(_NAMES[kind]).items()
    },
    **{name: _comparison() for name in _NAMES["comparisons"].split()},
    **{
        f"_foreach_{name}": _foreach(count, lists, name)
        for lists, kind in enumerate(("foreach_one", "foreach_two", "foreach_three"), 1)
        for name, count in _counts(_NAMES[kind]).items()
    },
    **_OTHERS,
}

ELEMENTWISE: dict[str, Formula] = {f"aten::{name}": formula for name, formula in _WITHOUT_NAMESPACE.items()}
"""Operator -> its formula."""
