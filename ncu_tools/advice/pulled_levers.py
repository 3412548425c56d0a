"""Which levers were pulled between two versions of a kernel, and what each was predicted and measured to save.

A lever leaves a sign, such as wider loads, fewer conflicts or another block size. The signs that changed most are
reported, by the logarithm of their ratio in units of the least ratio worth a word. A sign that changed in the wrong
direction is harm: a thread that takes several elements may leave accesses less coalesced.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ncu_tools.advice.advise import KernelAdvice, LeverAdvice
from ncu_tools.advice.levers.parallelism import is_contended
from ncu_tools.advice.situation.kernel_situation import Situation

NAMED = 3
AS_GOOD_AS_NONE = 0.02
"""A loss of up to this share of the time counts as no change."""
ROUNDING = 0.005
LEAST = 1e-3
"""Smaller shares are taken as this large, so that ratios stay finite."""


@dataclass(frozen=True)
class Sign:
    """A quantity that a lever changes (NaN if unknown), whether it rises, and the least factor worth a word."""

    lever: str
    title: str
    value: Callable[[Situation], float]
    rises: bool
    factor: float
    unit: str = ""


def _code(pattern: str) -> Callable[[Situation], float]:
    """The share of instructions whose opcode begins with a pattern."""
    return lambda one: math.nan if one.code is None else one.code.of(pattern)


def _self_moves(one: Situation) -> float:
    return math.nan if one.code is None or not one.code.has_text else one.code.self_moves / one.code.total


def _width(one: Situation) -> float:
    width, is_known = one.access_width
    return width if is_known else math.nan


def _conflicts(one: Situation) -> float:
    counted = one.get("conflicts")
    return one.conflict_share[0] if math.isnan(counted) else counted


def _loads_of_product(one: Situation) -> float:
    return one.loads_per_fma if one.is_product or one.looks_like_a_product else math.nan


def _all_threads(one: Situation) -> float:
    return one.get("blocks") * one.threads


def _operations(one: Situation, kind: str) -> float:
    """Additions, multiplications and multiply-adds of threads, "f" of FP32 or "d" of FP64; NaN if unknown."""
    names = [f"{kind}{name}" for name in ("add", "mul", "fma")]
    counted, rates = (sum(one.get(f"{name}{form}") for name in names) for form in ("", "_rate"))
    return rates * one.kernel.time_ns * one.get("sm_clock_hz") * 1e-9 if math.isnan(counted) else counted


def _fp64(one: Situation) -> float:
    """FP64 operations of a kernel that computes in FP64; NaN for others."""
    return _operations(one, "d") if one.is_double else math.nan


def _bytes_of_an_operation(one: Situation) -> float:
    """Mean width of floating-point operations in bytes: by the code, by counts, else by the busier pipe; else NaN."""
    if one.code is not None:
        widths = {8.0: "D(ADD|MUL|FMA|MMA)", 4.0: "F(ADD|MUL|FMA)", 2.0: "H(ADD2|MUL2|FMA2|MMA)"}
        found = {width: one.code.count(rf"{opcodes}\b") for width, opcodes in widths.items()}
    else:
        found = {8.0: _operations(one, "d"), 4.0: _operations(one, "f")}
    whole = sum(found.values())
    if whole > 0:
        return sum(width * count for width, count in found.items()) / whole
    if one.code is not None or not one.busy("fma") > 0 or math.isnan(one.busy("fp64")):
        return math.nan
    return 8.0 if one.is_double else 4.0


SIGNS = (
    Sign("coalesce", "sectors for each that is needed", lambda one: one.excess[0], False, 1.25),
    Sign("widen-accesses", "bytes of a thread's access", _width, True, 1.3, "byte"),
    Sign("pad-shared-memory", "passes over shared memory that conflicts add", _conflicts, False, 1.7),
    Sign(
        "tile-shared-memory", "instructions on shared memory", _code(r"(LDS|STS|LDSM|LDGSTS)\b"), True, 2.0, "fraction"
    ),
    Sign("tile-shared-memory", "use of shared memory (1: yes)", lambda one: float(one.uses_shared_memory), True, 30.0),
    Sign("tile-registers", "loads for each multiply-add", _loads_of_product, False, 1.3),
    Sign("block-size", "threads of a block", lambda one: one.threads, True, 1.5, "thread"),
    Sign("block-size", "threads of a block", lambda one: one.threads, False, 1.5, "thread"),
    Sign("grid-size", "threads of the launch", _all_threads, True, 1.5, "thread"),
    Sign("more-in-flight", "threads of the launch", _all_threads, False, 1.5, "thread"),
    Sign("more-in-flight", "registers of a thread", lambda one: one.get("registers"), True, 1.3, "register"),
    Sign("balance", "time that an SM has no work", lambda one: one.get("idle"), False, 3.0, "fraction"),
    Sign(
        "occupancy", "warps that fit on an SM, of its slots", lambda one: one.get("theoretical"), True, 1.15, "fraction"
    ),
    Sign("occupancy", "registers of a thread", lambda one: one.get("registers"), False, 1.15, "register"),
    Sign("fewer-instructions", "warp instructions", lambda one: one.get("instructions"), False, 1.1, "inst"),
    Sign("contract-and-fast-math", "FP64 operations of threads", _fp64, False, 1.05, "inst"),
    Sign(
        "contract-and-fast-math",
        "instructions of divisions and roots",
        _code(r"FCHK|MUFU\.(RCP64H|RSQ64H)"),
        False,
        1.5,
        "fraction",
    ),
    Sign("lower-precision", "width of a floating-point operation", _bytes_of_an_operation, False, 1.3, "byte"),
    Sign("constant-memory", "loads from constant memory", _code(r"(LDC|ULDC|LDCU)\b"), True, 3.0, "fraction"),
    Sign("local-memory", "instructions on local memory", lambda one: one.local_share, False, 1.5, "fraction"),
    Sign("privatise-atomics", "updates that queue (1: yes)", lambda one: float(is_contended(one)), False, 30.0),
    Sign("divergence", "threads of a warp that take part", lambda one: one.get("lanes"), True, 1.08, "thread"),
    Sign("release-build", "moves of a register to itself", _self_moves, False, 3.0, "fraction"),
    Sign("tensor-cores", "instructions of tensor cores", _code(r"[HIBDQO]MMA|[HIQB]GMMA|UTC"), True, 2.0, "fraction"),
    Sign("library-kernel", "a library's kernel (1: yes)", lambda one: float(one.is_from_a_library), True, 30.0),
)
"""The signs of the levers."""
EITHER_WAY = ("block-size", "grid-size", "more-in-flight", "constant-memory", "tile-shared-memory", "tensor-cores")
"""Levers whose signs may change in both directions without harm."""


@dataclass(frozen=True)
class PulledLever:
    """A lever that was pulled: its sign before and after, and the advice on it for the old version."""

    lever: str
    title: str
    unit: str
    before: float
    after: float
    strength: float
    said: LeverAdvice | None


@dataclass(frozen=True)
class KernelChangeAdvice:
    """Two versions of a kernel: levers pulled between them, signs that got worse, and the time saved.

    `brought` is the saved share of the mean time of a launch, below 0 where the new version takes longer.
    """

    old: KernelAdvice
    new: KernelAdvice
    pulled: Sequence[PulledLever]
    harmed: Sequence[PulledLever]
    brought: float

    @property
    def next(self) -> LeverAdvice | None:
        """The first lever on the new version that is worth it; None if there is none."""
        return next(iter(self.new.that_keep_it), None)

    def is_inside_prediction(self, one: PulledLever) -> bool | None:
        """Whether the measured saving lies in a lever's predicted interval; None without a prediction."""
        if one.said is None:
            return None
        low, _, high = one.said.saves
        real = 0.0 if -AS_GOOD_AS_NONE < self.brought < 0 else self.brought
        return low - ROUNDING <= real <= high + ROUNDING


def change_of(old: KernelAdvice, new: KernelAdvice) -> KernelChangeAdvice:
    """The levers pulled between two versions of a kernel, and the time that they saved."""
    brought = 1.0 - new.kernel.time_ns / old.kernel.time_ns
    return KernelChangeAdvice(old, new, _pulled(old, new), _pulled(old, new, harm=True), brought)


def _pulled(old: KernelAdvice, new: KernelAdvice, *, harm: bool = False) -> list[PulledLever]:
    """The levers whose signs changed most, at most `NAMED` of them; with `harm` those that changed for the worse."""
    if old.situation is None or new.situation is None:
        return []
    found: dict[str, PulledLever] = {}
    for sign in SIGNS:
        before, after = sign.value(old.situation), sign.value(new.situation)
        strength = -_strength(sign, before, after) if harm else _strength(sign, before, after)
        if harm and sign.lever in EITHER_WAY:
            continue
        if strength >= 1 and strength > (found[sign.lever].strength if sign.lever in found else 0.0):
            said = next((one for one in old.levers if one.lever == sign.lever), None)
            found[sign.lever] = PulledLever(sign.lever, sign.title, sign.unit, before, after, strength, said)
    return sorted(found.values(), key=lambda one: -one.strength)[:NAMED]


def _strength(sign: Sign, before: float, after: float) -> float:
    """How far a sign changed in its direction, 1 for the least worth a word; 0 if it is unknown."""
    if math.isnan(before) or math.isnan(after):
        return 0.0
    ratio = max(after, LEAST) / max(before, LEAST)
    if not 0 < ratio < math.inf:
        return 0.0
    return (1 if sign.rises else -1) * math.log(ratio) / math.log(sign.factor)


Naming = Callable[[str], str]
"""A function from a kernel's name to the name by which kernels are matched."""


def paired(
    old: Sequence[KernelAdvice], new: Sequence[KernelAdvice], names: tuple[Naming, Naming]
) -> list[KernelChangeAdvice]:
    """The kernels of two runs matched by `names`; also the only kernel of each run.

    They stay in the order of `old`. Among several grids of a kernel the nearest in threads is matched.
    """
    found = []
    for one in old:
        same = [other for other in new if names[1](other.kernel.name) == names[0](one.kernel.name)]
        if not same and len({each.kernel.name for each in old}) == len({each.kernel.name for each in new}) == 1:
            same = list(new)
        if same:
            found.append(change_of(one, min(same, key=lambda other: _distance_of_launches(one, other))))
    return found


def _distance_of_launches(one: KernelAdvice, other: KernelAdvice) -> tuple[float, float]:
    """How different the launches of two kernels are: by number of threads, then by time."""

    def distance(first: float, second: float) -> float:
        return abs(math.log(first / second)) if first > 0 and second > 0 else math.inf

    threads = [each.kernel.get("blocks") * each.kernel.get("threads") for each in (one, other)]
    return round(distance(*threads), 1), distance(one.kernel.time_ns, other.kernel.time_ns)
