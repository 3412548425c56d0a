"""A kernel as levers see it: its counters, its code, and quantities derived from both."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ncu_parsers.schema.tables import OF_SEVERAL_KERNELS

from ncu_tools.advice.situation.code_facts import CodeFacts
from ncu_tools.advice.situation.constants import constants
from ncu_tools.advice.situation.measured import MeasuredKernel
from ncu_tools.advice.situation.utilisation import resources
from ncu_tools.kernels.names.categories import category_of

NAN = math.nan
SECTOR = 32.0
WARP = 32.0
PASSES_OF_L1 = ("wavefronts_busy", "requests_busy")
"""The quantities whose ratio is the number of passes over L1 and shared memory per request."""
GEMM_LIKE = re.compile(
    r"gemm|matmul|mat_?mul|\bmm_|_mm\b|mmul|matrix_?mult|mult_?matri|dot_?product_matrix"
    r"|(?:block|warp|register|thread)_?til(?:e|ing)",
    re.IGNORECASE,
)
GEMM_BY_PARAMETERS = re.compile(
    r"\((?:(?:unsigned |const )*(?:int|long|size_t|unsigned) *, *){3}(?P<real>float|double|__half|half), "
    r"(?:const )?\w+ ?\*[^,]*, (?:const )?\w+ ?\*[^,]*, (?P=real), \w+ ?\*[^,]*\)"
)
"""Parameters in the order of BLAS: M, N, K, alpha, A, B, beta, C."""
FROM_LIBRARIES = re.compile(
    r"cutlass|cublas|cudnn|xmma|sm\d\d_|ampere_|volta_|turing_|hopper_|maxwell_|nvjet|flash|cub::|thrust|at::native|at_cuda_detail|^(range|graph)$",
    re.IGNORECASE,
)


ON_IN_A_TREE = 0.8
"""Largest mean share of active threads per warp in a tree reduction: half of them drop out at each step."""
MOST_SMS, LEAST_SMS = 192.0, 10.0
"""SMs of the largest and of a small GPU: bounds for the blocks per SM of a grid on an unknown GPU."""
LEAST_OF_A_PRODUCT = 96.0
"""Fewest instructions per warp of a matrix product: two loads and a multiply-add for each of 32 pairs."""
DRIVERS_SHARED_MEMORY = 1100.0
"""Most bytes of shared memory per block that the driver reserves (1 KiB, as printed)."""
MOST_THAT_SHARED_MEMORY_LIMITS = 8.0
"""Blocks per SM that the driver's 1 KiB each leaves room for in the smallest shared memory of an SM (8 KiB)."""
LEAST_LOADS = 0.01
"""With fewer loads per multiply-add, the factors were not loaded: 8 x 8 tiles in registers need 0.06."""
NO_PRODUCT = re.compile(r"gemv|mat_?vec|matrix_?vector|split_?k_?reduce", re.IGNORECASE)
"""Kernels named like products that are none: products with a vector, and sums over parts of a split product."""
REDUCTION = re.compile(r"reduc|\bsum|sums?_|dot_?prod|norm|softmax", re.IGNORECASE)
INTEGER = re.compile(
    r"(\s|\*|&|const|volatile|unsigned|signed|char|short|int|long|bool|u?int\d+_t|size_t|__restrict__)+"
)
"""A list of parameters that are integers or pointers to integers."""
POINTED_TO = (
    (1.0, r"(un)?signed char|char|u?int8_t"), (2.0, r"__half|half|__nv_bfloat16|bfloat16|(unsigned )?short"),
)  # fmt: skip
"""Bytes of narrow types, and how parameters name them."""
HISTOGRAM = re.compile(r"histo|bin_?count", re.IGNORECASE)
ON_TENSOR_CORES = re.compile(
    r"tensorop|wmma|hmma|[hif]mma|mma_sync|16816|1688|s884|xmma(?!.*ffma)|nvjet|flash|fmha", re.IGNORECASE
)
IN_LIBRARIES = re.compile(
    r"reduce|reduction|scan|prefix|sort|histogram|softmax|layer_?norm|attention|conv", re.IGNORECASE
)


@dataclass(frozen=True)
class LeverEvidence:
    """One number that a lever's saving follows from: what it is, value, unit, and the metrics behind it."""

    quantity: str
    value: float
    unit: str
    metrics: Sequence[str]


@dataclass
class Situation:
    """A kernel and its code; a quantity that neither counters nor code tell is NaN."""

    kernel: MeasuredKernel
    code: CodeFacts | None = None

    def get(self, name: str, otherwise: float = NAN) -> float:
        """The quantity of this name from counters; `otherwise` if unknown."""
        return self.kernel.get(name, otherwise)

    def busy(self, name: str) -> float:
        """The share of the time that a resource is busy; NaN if unknown."""
        return self.kernel.busy.get(name, NAN)

    def busiest(self, *names: str) -> float:
        """The share of the time that the busiest of these resources is busy; NaN if none is known."""
        return max((self.kernel.busy[name] for name in names if name in self.kernel.busy), default=NAN)

    def evidence(self, title: str, value: float, unit: str, *names: str) -> LeverEvidence:
        """A number as evidence, with the metrics behind the quantities and resources of these names."""
        behind = [metric for name in names if self.kernel.has(name) for metric in self.kernel.metrics.get(name, ())]
        return LeverEvidence(title, value, unit, list(dict.fromkeys(behind)))

    @property
    def bound_title(self) -> str:
        """The title of the busiest resource; "" if none is known."""
        return str(resources()[self.kernel.bound[0]]["title"]) if self.kernel.busy else ""

    @cached_property
    def bound(self) -> float:
        """The share of the time that the busiest resource is busy; NaN if none is known."""
        return self.kernel.bound[1] if self.kernel.busy else NAN

    # ------------------------------------------------------------------------------------------------- parallelism

    @cached_property
    def blocks_per_sm(self) -> float:
        """Blocks of the grid per SM; for a grid smaller than any GPU, if unknown, the share of SM time with work."""
        known, blocks = self.get("blocks_per_sm"), self.get("blocks")
        if math.isnan(known) and blocks <= MOST_SMS:
            return 1.0 - self.get("idle")
        return known

    @property
    def least_blocks_per_sm(self) -> float:
        """Blocks of the grid for each SM, at least."""
        return self.get("blocks") / MOST_SMS if math.isnan(self.blocks_per_sm) else self.blocks_per_sm

    @property
    def filled(self) -> float:
        """Threads on an SM, of those it holds."""
        return self.threads_on_an_sm / self.threads_an_sm_holds

    @property
    def most_filled(self) -> float:
        """Threads on an SM, of those it holds, at most on a GPU of `LEAST_SMS` or more."""
        return self.get("blocks") / LEAST_SMS * self.threads / self.threads_an_sm_holds

    @cached_property
    def threads(self) -> float:
        """Threads per block; NaN if unknown."""
        return self.get("threads")

    @cached_property
    def threads_on_an_sm(self) -> float:
        """Threads resident on an SM at once; of a grid of less than a wave, its threads per SM."""
        return self.threads * self.blocks_per_sm / max(self.get("waves", 1.0), 1.0)  # ncu prints 0.00 of tiny grids

    @property
    def threads_an_sm_holds(self) -> float:
        """Most threads that an SM's warp slots can hold."""
        return WARP * (self.get("most_warps", 48.0) or NAN)

    @property
    def threads_of_whole_warps(self) -> float:
        """Threads that would be resident on an SM if each block were whole warps."""
        return min(self.threads_an_sm_holds, self.threads * self.blocks_per_sm)

    @cached_property
    def warps_per_scheduler(self) -> float:
        """Mean active warps per scheduler, at four schedulers per SM; at least those of one block if unknown."""
        direct = self.get("warps_per_sm")
        if math.isnan(direct):
            direct = self.get("achieved") * self.get("most_warps", 48.0)
        if math.isnan(direct) and (self.least_blocks_per_sm >= 1 or self.blocks_per_sm <= 1):
            direct = self.threads / WARP
        return direct / 4.0

    @cached_property
    def cycles_per_instruction(self) -> float:
        """Cycles between two instructions of a resident warp; NaN if unknown."""
        known = self.get("latency")
        rate = self.issue_rate if self.issue_rate > 0 else self.busy("sm")
        return known if not math.isnan(known) else self.warps_per_scheduler / rate if rate > 0 else NAN

    @cached_property
    def issue_rate(self) -> float:
        """Instructions that a scheduler issues per cycle."""
        known = self.get("issue_per_cycle")
        return known if not math.isnan(known) else self.busy("issue")

    def waits(self, *reasons: str) -> float:
        """The share of a warp's time in these stalls; a default where no stalls were collected."""
        found = self.kernel.stalled(*reasons)
        return constants()["model"]["waits_unknown"] if math.isnan(found) else found

    @property
    def waits_by_latency(self) -> float:
        """The share of a warp's time beyond what its own instructions take; 0 if unknown.

        Where a warp issues every few hundred cycles, it waits for memory or for other warps.
        """
        own = constants()["model"]["cycles_of_instruction"]
        return 1 - own / self.cycles_per_instruction if self.cycles_per_instruction > own else 0.0

    @property
    def has_stalls(self) -> bool:
        """True if stalls were collected."""
        return bool(self.kernel.stalls)

    # ----------------------------------------------------------------------------------------------- global memory

    @cached_property
    def load_width(self) -> float:
        """Mean bytes per thread of global loads, by the code; NaN without it."""
        return self.code.width("LDG") if self.code is not None else NAN

    @cached_property
    def store_width(self) -> float:
        """Mean bytes per thread of global stores, by the code; NaN without it."""
        return self.code.width("STG") if self.code is not None else NAN

    def sectors_per(self, access: str) -> float:
        """Sectors per request of global loads or stores; NaN if unknown."""
        direct = self.get(f"sectors_per_{access}")
        requests, sectors = self.get(f"{access}_requests"), self.get(f"{access}_sectors")
        if math.isnan(sectors) and access == "store" and self.get("local_stores") == 0:
            sectors = self.get("sectors_written_to_l2")  # L1 writes through
        return sectors / requests if requests > 0 and not math.isnan(sectors) else direct

    @cached_property
    def excess(self) -> tuple[float, tuple[str, ...]]:
        """Sectors of global memory per sector that coalesced accesses would need (NaN if unknown), and its sources."""
        theoretical, ideal = self.get("theoretical_sectors"), self.get("ideal_sectors")
        if math.isnan(ideal):
            ideal = theoretical - self.get("excessive_sectors")
        if theoretical > 0 and ideal > 0:
            return theoretical / ideal, ("theoretical_sectors", "ideal_sectors", "excessive_sectors")
        by_rule = self.get("excessive_sectors by rule")
        if 0 < by_rule < 1:
            return 1 / (1 - by_rule), ("excessive_sectors by rule",)
        found = [
            one for one in (self._excess_of("load", self.load_width), self._excess_of("store", self.store_width)) if one
        ]
        if found:
            whole = sum(sectors for _, sectors in found)
            least = sum(sectors / ratio for ratio, sectors in found)
            return whole / least if least else NAN, (
                "load_sectors",
                "load_requests",
                "store_sectors",
                "sectors_per_load",
                "used_load_bytes",
            )
        return self._excess_by_passes

    def _excess_of(self, access: str, width: float) -> tuple[float, float] | None:
        """The excess of loads or stores, and the number of their sectors; None if unknown."""
        used, per_request = self.get(f"used_{access}_bytes"), self.sectors_per(access)
        sectors = self.get(f"{access}_sectors", per_request if not math.isnan(per_request) else 1.0)
        if used > 0:
            return max(1.0, SECTOR / used), max(sectors, 1e-9)
        if math.isnan(per_request) or per_request <= 0:
            return None
        if not math.isnan(width):
            return max(1.0, per_request / max(width, 1.0)), max(sectors, 1e-9)
        if per_request > 16.5:
            return per_request / 4.0, max(sectors, 1e-9)
        is_wide = any(abs(per_request - one) < 0.02 * one for one in (8.0, 16.0)) or per_request <= 4.2
        return (1.0 if is_wide else per_request / 4.0), max(sectors, 1e-9)

    @cached_property
    def _excess_by_passes(self) -> tuple[float, tuple[str, ...]]:
        """The excess estimated by passes over L1 per request where shared memory adds few; two requests make a pass."""
        passes, requests = self.kernel.busy.get("l1", NAN), self.get("requests_busy")
        wavefronts, shared = self.get("wavefronts_busy"), self.get("shared_busy")
        ratio = self.passes_per_request
        is_apart = not (self.uses_shared_memory and math.isnan(shared))  # else they may be passes over shared memory
        if is_apart and ratio > 0 and not shared > 0.3 * wavefronts:
            is_spread = ratio > constants()["coalesce"]["passes_per_request"]
            return (min(WARP, ratio) if is_spread else 1.0), PASSES_OF_L1
        sm = self.kernel.busy.get("sm", NAN)
        if math.isnan(passes) and self.is_gemm and not self.busy("dram") > 0.5 * self.busy("memory"):
            passes = self.busy("memory")  # what a product reads again comes from L1
        if math.isnan(requests) and passes > 0.3 and sm > 0 and "issue" not in self.kernel.busy:
            ratio = 2 * passes / sm  # at least: the SM is as busy as the pipe that sends requests, or busier
            is_spread = ratio > 2 * constants()["coalesce"]["passes_per_request"]
            if is_spread and not (self.uses_shared_memory or self.is_histogram):
                return min(WARP, ratio), ("l1", "sm")
        return NAN, ()

    @cached_property
    def passes_per_request(self) -> float:
        """Passes over L1 and shared memory per warp request, where a cycle takes two requests; NaN if unknown."""
        wavefronts, requests = self.get("wavefronts_busy"), self.get("requests_busy")
        return 2 * wavefronts / requests if wavefronts > 0 and requests > 0 else NAN

    @cached_property
    def access_width(self) -> tuple[float, bool]:
        """Bytes per thread of global accesses, by code or by sectors of coalesced loads; and whether that is known."""
        for known in (self.load_width, self.store_width):
            if not math.isnan(known):
                return known, True
        sectors = self.sectors_per("load")
        if 0 < sectors <= 16.5 and not self.excess[0] > constants()["widen"]["most_excess"]:
            return min(16.0, max(4.0, sectors)), True
        return self._width_by_types, False

    @property
    def _width_by_types(self) -> float:
        """Bytes of the narrowest type that the parameters point to; a number in the middle where none is known."""
        widths = [width for width, types in POINTED_TO if re.search(rf"\b({types}) ?\*", self.kernel.name)]
        return min(widths, default=float(constants()["widen"]["unknown"]))

    @cached_property
    def memory_instructions(self) -> float:
        """The share of instructions that access global memory; a guess if neither code nor counters tell."""
        if self.code is not None:
            return self.code.of(r"(LDG|STG|LD|ST)\b")
        requests, whole = self.get("load_requests", 0.0) + self.get("store_requests", 0.0), self.get("instructions")
        if requests > 0 and whole > 0:
            return min(0.5, requests / whole)
        lsu, issue = self.busy("lsu"), self.busy("issue")
        return min(0.4, lsu / (4 * issue)) if issue > 0 and lsu > 0 else 0.15

    @cached_property
    def local_share(self) -> float:
        """The share of instructions that access local memory; NaN if unknown."""
        if self.code is not None:
            return self.code.of(r"(LDL|STL)\b")
        local, whole = self.get("local_loads") + self.get("local_stores"), self.get("instructions")
        return local / whole if whole > 0 else NAN

    @cached_property
    def conflict_share(self) -> tuple[float, tuple[str, ...]]:
        """The share of passes over shared memory that bank conflicts add (NaN if unknown), and its sources."""
        ideal, whole, conflicts = (
            self.get(name) for name in ("shared_wavefronts_ideal", "shared_wavefronts", "conflicts")
        )
        if whole > 0 and not math.isnan(ideal):
            return max(0.0, 1 - ideal / whole), ("shared_wavefronts_ideal", "shared_wavefronts")
        if conflicts >= 0 and whole > 0:
            return min(1.0, conflicts / whole), ("conflicts", "shared_wavefronts")
        accesses = self.get("shared_loads", 0.0) + self.get("shared_stores", 0.0)
        if conflicts > 0 and accesses > 0:
            return conflicts / (conflicts + accesses), ("conflicts", "shared_loads", "shared_stores")
        by_rule, passes = self.get("conflicts by rule"), self.passes_per_request
        if math.isnan(by_rule) and self.uses_shared_memory and passes > constants()["coalesce"]["many_passes"]:
            return 1 - 2 / passes, PASSES_OF_L1
        return by_rule, ("conflicts by rule",)

    @cached_property
    def dram_excess(self) -> float:
        """DRAM bytes per byte of the sectors that coalesced accesses would need; NaN if unknown."""
        ideal, moved = self.get("ideal_sectors"), self.get("dram_bytes")
        if math.isnan(ideal):
            ideal = self.get("theoretical_sectors") - self.get("excessive_sectors")
        if math.isnan(ideal):
            ideal = self.get("sectors_asked_for by rule") * (1 - self.get("excessive_sectors by rule"))
        return moved / (ideal * SECTOR) if ideal > 0 else NAN

    # ------------------------------------------------------------------------------------------------------- shape

    @cached_property
    def fma_share(self) -> float:
        """The share of instructions that are FP32 multiply-adds; NaN if unknown."""
        if self.code is not None:
            return self.code.of(r"FFMA")
        whole = self.get("instructions") * WARP
        return self.get("ffma") / whole if whole > 0 else NAN

    @cached_property
    def loads_per_fma(self) -> float:
        """Loads from global and shared memory per multiply-add; NaN if unknown."""
        if self.code is not None:
            fmas = self.code.count(r"FFMA|HFMA2|DFMA|IMAD(?!\.MOV)(?!\.SHL)(?!\.IADD)(?!\.WIDE)(?!\.X)")
            return self.code.count(r"LDG|LDS|LD\b|LDSM") / fmas if fmas else NAN
        loads = self.get("load_requests", 0.0) + self.get("shared_loads", 0.0)
        if loads > 0 and self.get("ffma") > 0:
            return loads / (self.get("ffma") / WARP)
        fma, lsu = self.busy("fma"), self.busy("lsu")
        return lsu / (4.0 * fma) if fma > 0.02 else NAN

    @cached_property
    def slow_share(self) -> float:
        """The share of instructions in divisions and roots at full precision; 0 without code."""
        if self.code is None:
            return 0.0
        facts = constants()["fast_math"]
        of_double = facts["of_double"] * self.code.of(r"MUFU\.(RCP64H|RSQ64H)")
        return min(1.0, float(facts["of_division"] * self.code.of("FCHK") + of_double))

    @cached_property
    def integer_division_share(self) -> float:
        """The share of instructions in integer divisions and remainders: each converts its divisor once.

        Without code, it follows from the XU pipe in kernels on integers alone, where nothing else uses that pipe.
        """
        facts = constants()["instructions"]
        if self.code is not None:
            return min(1.0, float(facts["of_integer_division"] * self.code.of(r"I2F(\.\w+)*\.RP")))
        if self.remainders_of_a_tree > 0:
            return self.remainders_of_a_tree
        xu, issue = self.busy("xu"), self.busy("issue")
        if self.is_in_floats or not (xu > 0 and issue > 0):
            return 0.0
        divisions = xu / facts["cycles_of_xu"] / facts["xu_of_division"]
        return min(1.0, float(facts["of_integer_division"] * divisions / issue))

    @cached_property
    def remainders_of_a_tree(self) -> float:
        """The share of instructions in remainders of a sum over a block that chooses its threads by them; else 0.

        Every warp computes one at each of its steps, for the result of which most threads are switched off.
        """
        facts = constants()["instructions"]
        drop_out = self.get("lanes_on") < ON_IN_A_TREE * WARP
        if self.code is not None or not self.is_reduction or not drop_out or not self.threads > 1:
            return 0.0
        of_a_step = self.instructions_of_a_warp / math.log2(self.threads)
        if not of_a_step > facts["step_of_a_tree"] + facts["of_integer_division"] / 2:
            return 0.0
        return min(1.0, float(facts["of_integer_division"] / of_a_step))

    @cached_property
    def contractible(self) -> float:
        """The share of instructions that contracting multiplications and additions would save; NaN if unknown."""
        if self.code is not None:
            pairs = ((self.code.of("FADD"), self.code.of("FMUL")), (self.code.of("DADD"), self.code.of("DMUL")))
            return 0.5 * sum(map(min, pairs))
        whole, found = self.get("instructions") * WARP, []
        for add, multiply, both in (("fadd", "fmul", "ffma"), ("dadd", "dmul", "dfma")):
            for behind in ("", "_rate"):
                counts = [self.get(f"{name}{behind}") for name in (add, multiply, both)]
                of = whole if not behind and whole > 0 else sum(counts)
                if of > 0 and not math.isnan(counts[0] + counts[1]):
                    found.append(0.5 * min(counts[:2]) / of)
        return max(found, default=NAN)

    @cached_property
    def is_bound_by_accesses(self) -> bool:
        """True if loads and stores keep both the SMs and the memory system busy: their throughputs agree.

        The LSU pipe is a part of both throughputs, and where only throughputs were collected nothing else is.
        """
        sm, memory = self.busy("sm"), self.busy("memory")
        return sm > 0.6 and abs(sm - memory) < 0.02

    @cached_property
    def looks_like_a_product(self) -> bool:
        """True if the kernel reuses what it multiplies, as a matrix product does, and DRAM and L2 are not its bound."""
        if self.busy("dram") > 0.4 or self.busy("l2") > 0.7 or not self.bound >= 0.3 or self.is_reduction:
            return False
        if self.loads_per_fma < LEAST_LOADS:
            return False
        if self.busy("alu") > self.busy("fma") or self.instructions_of_a_warp < LEAST_OF_A_PRODUCT:
            return False
        if math.isnan(self.busy("lsu")) and self.is_bound_by_accesses:
            return True
        if not math.isnan(self.fma_share):
            return self.fma_share > 0.12 and (self.get("l1_hit") > 0.5 or self.reuses > 2.5 or self.uses_shared_memory)
        return self.busy("fma") > 0.05 and (
            self.busy("lsu") > 0.3 or (self.busy("fma") > 0.2 and self.busy("l1") > 0.3)
        )

    @property
    def warps(self) -> float:
        """Warps of the launch; NaN if unknown."""
        return self.get("blocks") * math.ceil(self.threads / WARP) if self.threads > 0 else NAN

    @property
    def loads_of_a_thread(self) -> float:
        """Global loads per thread; NaN if unknown."""
        return self.get("load_requests") / self.warps if self.warps > 0 else NAN

    @property
    def threads_loop(self) -> bool:
        """True if a thread has work that others can share: many loads or, where they were not counted, a long life."""
        facts, loads = constants()["blocks"], self.loads_of_a_thread
        waves = self.get("waves", 1.0 if self.get("blocks") <= MOST_SMS else NAN)
        life = self.kernel.time_ns / max(waves, 1.0)
        return loads > float(facts["many_loads"]) or (math.isnan(loads) and life > facts["long_ns"])

    @cached_property
    def instructions_of_a_warp(self) -> float:
        """Instructions per warp, counted or by issue slots; NaN if unknown."""
        counted, schedulers = self.get("instructions"), 4 * self.get("sm_count")
        executed = self.busy("issue") * schedulers * self.get("cycles") if math.isnan(counted) else counted
        return executed / self.warps if self.warps > 0 else NAN

    @cached_property
    def is_histogram(self) -> bool:
        """True for a kernel named like a histogram: addresses of its updates depend on the data."""
        return bool(HISTOGRAM.search(self.kernel.name))

    @cached_property
    def reads_a_tile_by_words(self) -> bool:
        """True for a product that reads its tile in shared memory in fewer than 16 bytes a thread, as far as known."""
        is_product = self.is_product or self.looks_like_a_product
        has_tile = self.uses_shared_memory or self.get("registers") > constants()["tile_registers"]["of_no_tile"]
        width = self.code.width("LDS") if self.code is not None else NAN
        return is_product and has_tile and not self.uses_tensor_cores and not width > constants()["widen"]["wide"] / 2

    @cached_property
    def is_in_libraries(self) -> bool:
        """True for a kernel named like one that CUB, cuBLAS or cuDNN provides."""
        return bool(IN_LIBRARIES.search(self.kernel.name))

    @cached_property
    def uses_tensor_cores(self) -> bool:
        """True if tensor cores do some of the work."""
        if self.code is not None:
            return self.code.of(r"[HIBDQO]MMA|[HIQB]GMMA|UTC.?MMA") > 0.002
        if ON_TENSOR_CORES.search(self.kernel.name):
            return True
        return self.get("tensor_flops", 0.0) > 0 or self.busy("tensor") > 0.25

    @cached_property
    def is_double(self) -> bool:
        """True if the arithmetic is in FP64, on CUDA cores."""
        if self.code is not None:
            return self.code.count("DFMA|DMUL|DADD") > self.code.count("FFMA|FMUL|FADD")
        if "fp64" in self.kernel.busy:
            fma = self.busy("fma")
            return self.busy("fp64") > (0.0 if math.isnan(fma) else fma)
        return bool(re.search(r"\bdouble\b", self.kernel.name)) and not re.search(r"\bfloat\b", self.kernel.name)

    @cached_property
    def is_in_floats(self) -> bool:
        """True if the kernel computes in floating point, by its code or the types of its parameters, or if unknown."""
        if self.code is not None:
            return self.code.count(r"[FDH](FMA|MUL|ADD)|[FDH]SETP|[FDH]MNMX|H?MMA") > 0
        parameters = self.kernel.name.partition("(")[2].rstrip(") ")
        return not parameters or not all(map(INTEGER.fullmatch, parameters.split(",")))

    @cached_property
    def is_several_kernels(self) -> bool:
        """True for a range or graph that ncu profiled as one: it has no grid, and SMs may wait between its kernels."""
        return self.kernel.name in OF_SEVERAL_KERNELS and not self.kernel.grid

    @cached_property
    def is_product(self) -> bool:
        """True for a matrix product or a convolution, by name or parameters."""
        return self.is_gemm or self.is_convolution

    @cached_property
    def is_convolution(self) -> bool:
        """True for a convolution, by name: all threads of a warp read the same element of its filter."""
        return category_of(self.kernel.name) == "convolution"

    @cached_property
    def is_gemm(self) -> bool:
        """True for a product of two matrices, by name or parameters; products with a vector reuse nothing."""
        name = self.kernel.name
        is_named = bool(GEMM_LIKE.search(name)) or category_of(name) == "GEMM"
        return not NO_PRODUCT.search(name) and (is_named or bool(GEMM_BY_PARAMETERS.search(name)))

    @cached_property
    def reuses(self) -> float:
        """How often data is read from L1 or L2 per read from the level behind it; NaN if unknown."""
        asked, missed = self.get("sectors_asked_of_l2"), self.get("dram_read_bytes") / SECTOR
        hit = self.get("l1_hit")
        by_l2 = asked / missed if missed > 0 and asked > 0 else 1 / max(1 - self.get("l2_hit"), 0.02)
        by_l1 = 1 / max(1 - hit, 0.02) if not math.isnan(hit) else 1.0
        return max(by_l1, by_l2) if not math.isnan(by_l2) else by_l1 if not math.isnan(hit) else NAN

    @cached_property
    def exchanges_in_global_memory(self) -> bool:
        """True if threads wait at barriers without using shared memory: they exchange values in global memory."""
        if self.code is not None:
            uses = self.code.of(r"(LDS|STS|LDSM|LDGSTS|ATOMS)\b") > 0
        else:
            uses = self.get("shared_loads") != 0 or self.get("shared_stores", 0.0) > 0
        return not uses and self.kernel.stalled("barrier") > constants()["tile_shared"]["least_at_barriers"]

    @cached_property
    def is_reduction(self) -> bool:
        """True for a reduction: by its name, or if threads drop out that have a word of shared memory each."""
        drop_out = self.get("lanes_on") < ON_IN_A_TREE * WARP
        return bool(REDUCTION.search(self.kernel.name)) or (drop_out and self.has_a_word_for_each_thread)

    @cached_property
    def own_shared(self) -> float:
        """Bytes of shared memory per block, without the driver's."""
        return self.get("shared_static") + self.get("shared_dynamic")

    @cached_property
    def has_a_word_for_each_thread(self) -> bool:
        """True if a block has 4 or 8 bytes of shared memory per thread, to 1 %, as printed sizes are rounded."""
        sizes = [size * self.threads for size in (4.0, 8.0)]
        return any(abs(self.own_shared - size) <= 0.01 * size for size in sizes)

    @cached_property
    def sums_over_a_block(self) -> bool:
        """True for a reduction of a block as a tree in shared memory."""
        return self.is_reduction and self.has_a_word_for_each_thread

    @property
    def memory_busy(self) -> float:
        """The share of the time that DRAM or L2 is busy; NaN if DRAM's is unknown."""
        return max(self.busy("dram"), self.busy("l2")) if self.busy("l2") >= 0 else self.busy("dram")

    @cached_property
    def is_for_a_debugger(self) -> bool:
        """True for code compiled without optimisation, which moves registers to themselves."""
        if self.code is None or not self.code.has_text:
            return False
        return bool(self.code.self_moves / self.code.total >= constants()["release"]["least"])

    @cached_property
    def is_from_a_library(self) -> bool:
        """True for a kernel of a library, by its name."""
        return bool(FROM_LIBRARIES.search(self.kernel.name))

    @cached_property
    def uses_shared_memory(self) -> bool:
        """True if the kernel uses shared memory beyond what the driver reserves."""
        if self.code is not None:
            return self.code.of(r"LDS|STS|LDSM|LDGSTS") > 0.005
        if self.get("shared_loads", 0.0) > 0 or self.get("conflicts", 0.0) > 0:
            return True
        asked = self.get("shared_static") + self.get("shared_dynamic")
        if not math.isnan(asked):
            return asked > 0
        is_scarce = self.get("limit_shared") < min(self.get("limit_blocks"), MOST_THAT_SHARED_MEMORY_LIMITS)
        return is_scarce or self.get("shared_per_block", 0.0) > DRIVERS_SHARED_MEMORY
