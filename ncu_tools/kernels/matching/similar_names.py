"""Similarity of kernel names: `rms_norm_v1` and `rms_norm_float4` are likely one kernel, rewritten.

Names are compared word by word from the left. Words on how a kernel is written (versions, types, `tiled`, `kernel`) are
left out, so `gemm_naive` and `tiled_gemm_v2` share `gemm`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import takewhile

from ncu_parsers.schema.tables import short_name

from ncu_tools.kernels.names.kernel_name_spelling import drop_parameters

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_WAYS_AND_TYPES = """
kernel kernels cuda gpu device global func function impl launch run test main void anonymous namespace detail at native
std triton cutlass cublas cudnn julia poi red per fused sm mma wmma ampere volta turing hopper float double half int
uint char bool long short unsigned signed const fp bf tf bfloat vec nn nt tn tt naive basic simple baseline base ref
reference old new fast faster opt optimized optimised improved better final version ver v x tiled tiling tile shared
smem reg registers vector vectorized vectorised unroll unrolled warp block thread coalesced persistent pipelined async
strided
"""
_SAY_LITTLE = frozenset(_WAYS_AND_TYPES.split())
BACKWARD = frozenset(("bwd", "backward", "bprop", "dgrad", "wgrad", "grad"))
"""A kernel with one of these words in its name never matches one without."""


@lru_cache(maxsize=65536)
def words_of(name: str) -> tuple[str, ...]:
    """The words of a kernel's short name that describe what it does, in lower case; single letters only if all are."""
    words = _meaningful(short_name(name))
    return tuple(word for word in words if len(word) > 1) or tuple(words)


@lru_cache(maxsize=65536)
def argument_words(name: str) -> frozenset[str]:
    """The words of template arguments that are names (functors and tags), not types and numbers."""
    return frozenset(_meaningful(drop_parameters(name).partition("<")[2]))


def shared_words(one: str, other: str) -> tuple[str, ...]:
    """The words that both names begin with; () if the kernels differ.

    Functors as template arguments make different kernels of a wrapper such as `vectorized_elementwise_kernel`; types
    and numbers do not.
    """
    ours, theirs = words_of(one), words_of(other)
    if argument_words(one) != argument_words(other) or bool(BACKWARD & {*ours}) != bool(BACKWARD & {*theirs}):
        return ()
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False))
    return tuple(word for word, _ in alike)


def _meaningful(text: str) -> list[str]:
    return [word for word in map(str.lower, _WORD.findall(text)) if word not in _SAY_LITTLE]
