"""Element types of tensor lists, which PyTorch's profiler does not record, from the names of their kernels.

Kernels that take lists are named after the type that they are compiled for: `CatArrayBatchedCopy<float, ...>`, with
`OpaqueType<2u>` for any type of 2 bytes, and `multi_tensor_apply_kernel<..., BinaryOpScalarFunctor<float, 1, 1, 0>,
...>`. All tensors of such a list have one type; `CopyFunctor<T, U, ...>` copies U to T. Source:
aten/src/ATen/native/cuda, Shape.cu, MultiTensorApply.cuh and ForeachBinaryOpList.cu. Other kernel names do not show the
type.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_TYPE = r"((?:unsigned |signed )?[\w:]+(?: int| long)?(?:<\w+(?:::\w+)*>)?)"
_CONCATENATION = re.compile(r"CatArrayBatchedCopy\w*<(?:[\w:() ]*OpaqueType<(\d+)u?>|" + _TYPE + ",)")
_COPY = re.compile(rf"multi_tensor_apply_kernel<.*?\bCopyFunctor<{_TYPE}, {_TYPE},")
_OF_LISTS = re.compile(rf"multi_tensor_apply_kernel<.*?Functor<{_TYPE},")

OPAQUE = {1: "uint8", 2: "int16", 4: "int32", 8: "int64", 16: "complex128"}
"""Bytes of an element -> a type of that size; such kernels move elements and do not compute."""

LONGEST = 1000
"""Length of the name's prefix, in characters, in which the type is searched."""

SHORTER = {"long": "int64", "unsigned long": "uint64", "unsigned int": "uint32", "unsigned short": "uint16"}
"""C++ types that are missing from the profiler's own spellings."""


def element_types(kernels: Sequence[str], types: dict[str, str]) -> tuple[str, ...]:
    """Element types of the first and the further lists that kernels take; () if their names do not show it.

    `types`: C++ type -> PyTorch's name.
    """
    for whole in kernels:
        kernel = whole[:LONGEST]
        if found := _CONCATENATION.search(kernel):
            opaque = OPAQUE.get(int(found[1])) if found[1] else None
            names: tuple[str | None, ...] = (opaque or _named(found[2], types),)
        elif found := _COPY.search(kernel):
            names = _named(found[1], types), _named(found[2], types)
        elif found := _OF_LISTS.search(kernel):
            names = (_named(found[1], types),)
        else:
            continue
        return tuple(name for name in names if name) if all(names) else ()
    return ()


def _named(name: str | None, types: dict[str, str]) -> str | None:
    return types.get(name or "") or SHORTER.get(name or "")
