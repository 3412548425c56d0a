"""The element types of lists of tensors, which PyTorch's profiler does not record, from the names of their kernels.

Kernels that take lists name the type that they are compiled for: `CatArrayBatchedCopy<float, ...>`, with
`OpaqueType<2u>` for any of 2 bytes, and `multi_tensor_apply_kernel<..., BinaryOpScalarFunctor<float, 1, 1, 0>, ...>`.
Their lists have one type each; `CopyFunctor<T, U, ...>` copies U to T. Source: aten/src/ATen/native/cuda, Shape.cu,
MultiTensorApply.cuh and ForeachBinaryOpList.cu. Kernels of other names tell nothing.
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
"""Characters of a name in which the type stands, if anywhere."""

SHORTER = {"long": "int64", "unsigned long": "uint64", "unsigned int": "uint32", "unsigned short": "uint16"}
"""Types of C++ that the profiler's own spellings lack."""


def element_types(kernels: Sequence[str], types: dict[str, str]) -> tuple[str, ...]:
    """The types of the first and of the further lists that kernels take, () where their names do not tell.

    `types`: types of C++ -> as PyTorch names them.
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
