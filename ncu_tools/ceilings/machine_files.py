"""Machine files: peaks and bandwidths of a machine with unit and source, one TOML file per machine.

A value without a reliable source is absent. Rates are dense unless marked sparse, in FLOP/s (OP/s for integers) and
B/s.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ncu_launch.errors import NcuBenchError, WrongUsage, near_names
from ncu_launch.files.toml_tables import tomllib

COMPUTE_UNITS = (
    "fp64", "fp32", "fp16", "bf16",
    "tensor_fp64", "tensor_tf32", "tensor_bf16", "tensor_fp16", "tensor_fp8", "tensor_fp6", "tensor_fp4",
    "tensor_int8", "tensor_int4", "tensor_int1",
)  # fmt: skip
DRAM = "dram"
MEMORY_LEVELS = (DRAM, "l2", "l1")
TRAFFIC, NVIDIA = "traffic", "nvidia"
HOST_LINK, PEER_LINK = "host", "peer"
LINK_ENDS = (HOST_LINK, PEER_LINK)
"""Ends of a GPU's links: the memory of the host, and all other GPUs together."""
BYTES_COUNTED = (TRAFFIC, NVIDIA)
"""The definitions of bytes at L2 and L1 (see `levels`)."""
KINDS = ("gpu", "cpu", "accelerator")
TWO_THIRDS = "2/3 of wgmma, as ncu's peaks of both instructions"
"""Derivation of the mma.sync rate in a machine file."""
SHIPPED = Path(__file__).with_name("machines")
OF_GB = 2**30 / 1e9
"""Bytes per GB printed in a data sheet: an MI300X of 192 GB has 206.1e9 bytes by its driver, as PyTorch reports."""


class Rate(NamedTuple):
    """The peak of one unit (FLOP/s or OP/s) or the bandwidth of one memory level (B/s), with its source.

    `mma_sync` is the rate of the instruction mma.sync if the peak needs wgmma (Hopper). `clock_hz` is the SM clock of
    the peak if it is not the machine's `boost_clock_hz`. `sustained` is what the power limit of the board leaves of the
    peak in long kernels, if that was measured; `note` says by whom.
    """

    unit: str
    value: float
    source: str
    sparse: float | None = None
    note: str = ""
    mma_sync: float | None = None
    clock_hz: float | None = None
    sustained: float | None = None

    @property
    def instructions(self) -> tuple[str, str]:
        """The instruction of the rate, and the slower one; both "" if there is only one."""
        return ("wgmma", "mma.sync") if self.mma_sync is not None else ("", "")


UNITS_OF_TYPE = {
    "fp64": ("tensor_fp64", "fp64"), "fp32": ("fp32",), "tf32": ("tensor_tf32",), "fp16": ("tensor_fp16", "fp16"),
    "bf16": ("tensor_bf16", "bf16"), "int8": ("tensor_int8",), "fp8": ("tensor_fp8",),
}  # fmt: skip
"""Data type -> the units that can compute it, the fastest first."""


@dataclass(frozen=True)
class Machine:
    """One machine file. `rates` holds every peak and bandwidth by unit or level.

    `measured` rates were reached by `ncu-bench machines measure`, or `measured_quickly` by `ncu-bench profile`; the
    others are data-sheet values. `links` are one GPU's by `LINK_ENDS`, in one direction. `threads` is the number of CPU
    threads of a measurement, None if not given. `power_w` is what the board may draw; `ecc` the share of memory, and of
    its bandwidth, that check bits take where they lie in it. `same_name` describes another board with the same driver
    name, and `short_names` are the family names that mean this board, such as "h100".
    """

    id: str
    name: str
    kind: str
    vendor: str
    source: str
    rates: dict[str, Rate]
    chip: str | None = None
    compute_capability: str | None = None
    sm_count: int | None = None
    device_names: tuple[str, ...] = ()
    boost_clock_hz: float | None = None
    memory_bytes: float | None = None
    l2_bytes: float | None = None
    power_w: float | None = None
    ecc: float = 0.0
    stands_for_compute_capability: bool = False
    measured: bool = False
    measured_quickly: bool = False
    threads: int | None = None
    same_name: str = ""
    short_names: tuple[str, ...] = ()
    links: Mapping[str, Rate] = field(default_factory=dict)

    @property
    def peaks(self) -> list[Rate]:
        """Peaks of the compute units, in the order of `COMPUTE_UNITS`."""
        return [self.rates[unit] for unit in COMPUTE_UNITS if unit in self.rates]

    @property
    def most_memory_bytes(self) -> float | None:
        """The capacity of its memory: data sheets print GB for 2^30 bytes each."""
        return None if self.memory_bytes is None else self.memory_bytes * OF_GB

    @property
    def bandwidths(self) -> list[Rate]:
        """Bandwidths of the memory levels, outermost first."""
        return [self.rates[level] for level in MEMORY_LEVELS if level in self.rates]


def unit_of(machine: Machine, dtype: str, unit_name: str | None = None) -> str | None:
    """The unit of a machine that computes a data type, or the requested one; None if the machine has none.

    Raises `WrongUsage` if the machine lacks the requested unit.
    """
    if unit_name is not None:
        if unit_name not in machine.rates:
            known = ", ".join(rate.unit for rate in machine.peaks)
            raise WrongUsage(f"{machine.id} has no peak for {unit_name}.", advice=f"It has {known}.")
        return unit_name
    return next((unit for unit in UNITS_OF_TYPE.get(dtype, ()) if unit in machine.rates), None)


def machines() -> MachineFiles:
    """Every known machine, sorted by id; a valid user file replaces a shipped one of the same id.

    Invalid files are skipped here; `machines --check` names them.
    """
    return machines_with(own_folder())


class MachineFiles(Mapping[str, Machine]):
    """Machines by id, in order. A text is parsed on first access, which takes a millisecond.

    `own` are valid user files, which replace shipped ones.
    """

    def __init__(self, own: Mapping[str, str]) -> None:
        self._own = own
        self._texts = dict(sorted({**_shipped(), **own}.items()))

    def __getitem__(self, machine_id: str) -> Machine:
        return _parsed(machine_id, self._texts[machine_id])

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def with_words(self, words: str) -> Iterator[Machine]:
        """Machines whose file may contain these words, in any case and with any space, dash or underline between them.

        Shipped files contain them literally; a user's file may encode them, for example with escapes.
        """
        return (self[one] for one in self._texts if one in self._own or one in _shipped_with(words))


@lru_cache(maxsize=1)
def machines_with(own: Path) -> MachineFiles:
    """Every shipped machine and the valid ones of a folder, which replace shipped ones; sorted by id."""
    valid = {machine_id: text for machine_id, text in machine_files_in(own) if not problems(text)}
    return MachineFiles(valid)


@cache
def _shipped() -> Mapping[str, str]:
    """The texts of shipped machine files by id: part of the package, so that they are read once."""
    return dict(machine_files_in(SHIPPED))


@lru_cache(maxsize=256)
def _shipped_with(words: str) -> frozenset[str]:
    """The ids of shipped machine files that contain these words, as in `MachineFiles.with_words`."""
    searched = re.compile(r"[\s_-]+".join(map(re.escape, _folded(words).split("-"))), re.IGNORECASE)
    return frozenset(one for one, text in _shipped().items() if searched.search(text))


def machine_files() -> list[tuple[str, str]]:
    """(id, text) of every machine file, shipped and the user's, sorted by id."""
    return sorted([*machine_files_in(SHIPPED), *machine_files_in(own_folder())])


def own_folder() -> Path:
    """The folder of the user's machine files: ncu-bench/machines in the configuration folder."""
    return own_place("XDG_CONFIG_HOME", ".config") / "machines"


def own_place(variable: str, below_home: str) -> Path:
    """The user's ncu-bench folder, below the path in `variable` or home; without a home, an impossible path."""
    try:
        return Path(os.environ.get(variable) or Path.home() / below_home) / "ncu-bench"
    except RuntimeError:
        return Path(os.devnull, "ncu-bench")


def machine_files_in(folder: Path) -> list[tuple[str, str]]:
    """(id, text) of every machine file in a folder, sorted by id."""
    if not folder.is_dir():
        return []
    found = [entry for entry in folder.iterdir() if entry.name.endswith(".toml")]
    return sorted((entry.name.removesuffix(".toml"), entry.read_bytes().decode("utf-8", "replace")) for entry in found)


def parse_machine(machine_id: str, text: str) -> Machine:
    """Parse the text of a machine file.

    Raises `NcuBenchError` if `problems` finds any.
    """
    data, found = _checked(text)
    if found:
        raise NcuBenchError(
            f"The machine file {machine_id} is not valid: {found[0]}.", advice="See ncu-bench machines --check."
        )
    rates = [_rate(entry, data) for entry in (*data.get("peak", []), *data.get("bandwidth", []))]
    links = [_rate(entry, data) for entry in data.get("link", [])]
    return Machine(
        id=machine_id,
        rates={rate.unit: rate for rate in rates},
        device_names=tuple(data.get("device_names", ())),
        short_names=tuple(data.get("short_names", ())),
        memory_bytes=data.get("memory", {}).get("bytes"),
        l2_bytes=data.get("l2", {}).get("bytes"),
        ecc=data.get("memory", {}).get("ecc", 0.0),
        links={rate.unit: rate for rate in links},
        **{key: data[key] for key in _AS_THEY_ARE if key in data},
    )


_parsed = cache(parse_machine)
"""`parse_machine`, once for each text."""


def _rate(entry: dict[str, Any], data: dict[str, Any]) -> Rate:
    """A peak, bandwidth or link of a machine file, with its own source or else the file's."""
    more = {key: entry[key] for key in ("sparse", "note", "mma_sync", "clock_hz", "sustained") if key in entry}
    unit = entry.get("unit") or entry.get("level") or entry["to"]
    return Rate(unit, entry["value"], entry.get("source", data["source"]), **more)


_AS_THEY_ARE = (
    "name", "kind", "vendor", "source", "chip", "compute_capability", "sm_count", "boost_clock_hz", "power_w",
    "stands_for_compute_capability", "measured", "measured_quickly", "threads", "same_name",
)  # fmt: skip
"""Keys of machine files that are fields of `Machine` under the same name."""
_NUMBER = (int, float)
_TYPES: dict[str, type | tuple[type, ...]] = {
    "name": str, "kind": str, "vendor": str, "source": str, "chip": str, "compute_capability": str, "sm_count": int,
    "threads": int, "measured_quickly": bool, "same_name": str, "power_w": _NUMBER,
    "boost_clock_hz": _NUMBER, "stands_for_compute_capability": bool, "measured": bool, "device_names": list,
    "short_names": list,
    "peak": list, "bandwidth": list, "link": list, "memory": dict, "l2": dict,
}  # fmt: skip
_TYPES_OF_RATES: dict[str, type | tuple[type, ...]] = {
    "unit": str, "level": str, "to": str, "value": _NUMBER, "sparse": _NUMBER, "mma_sync": _NUMBER, "clock_hz": _NUMBER,
    "sustained": _NUMBER, "source": str, "note": str,
}  # fmt: skip


def _of_wrong_types(data: dict[str, Any]) -> list[str]:
    """Messages for the values of a machine file that have the wrong type for their key."""
    found = [f"{key} is no {_kind(wanted)}" for key, wanted in _TYPES.items() if not _is(data.get(key), wanted)]
    if found:
        return found
    found += [
        f"{key} are not all texts"
        for key in ("device_names", "short_names")
        if not all(isinstance(name, str) for name in data.get(key, ()))
    ]
    sizes = {f"{size} of {key}": data.get(key, {}).get(size) for key in ("memory", "l2") for size in ("bytes", "ecc")}
    found += [f"{key} is no number" for key, size in sizes.items() if not _is(size, _NUMBER)]
    if data.get("l2") and not isinstance(data["l2"].get("source"), str):
        found.append("l2 has no source")
    for entry in (*data.get("peak", []), *data.get("bandwidth", []), *data.get("link", [])):
        if not isinstance(entry, dict):
            return [*found, "a peak, bandwidth or link is no table"]
        found += [
            f"{key} of {entry.get('unit') or entry.get('level') or entry.get('to')} is no {_kind(wanted)}"
            for key, wanted in _TYPES_OF_RATES.items()
            if not _is(entry.get(key), wanted)
        ]
    return found


def _is(value: object, wanted: type | tuple[type, ...]) -> bool:
    """True if a value is absent or has the wanted type; booleans are not numbers."""
    return value is None or (isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool)))


def _kind(wanted: type | tuple[type, ...]) -> str:
    return {str: "text", bool: "true or false", list: "list", dict: "table"}.get(wanted, "number")  # type: ignore[arg-type]


def problems(text: str) -> list[str]:
    """The problems of a machine file's text; empty if it is valid."""
    return _checked(text)[1]


def _checked(text: str) -> tuple[dict[str, Any], list[str]]:
    """The parsed machine file, and its problems."""
    if "\ufffd" in text:
        return {}, ["not UTF-8"]
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        return {}, [f"not TOML: {error}"]
    return data, _of_wrong_types(data) or _of_wrong_values(data)


def _of_wrong_values(data: dict[str, Any]) -> list[str]:
    found = [f"{key} is missing" for key in ("name", "kind", "vendor", "source") if not data.get(key)]
    found += [f"{key} is not a key of machine files" for key in sorted(set(data) - {"schema", *_TYPES})]
    if data.get("schema") != 1:
        found.append("schema is not 1")
    if data.get("kind") not in KINDS:
        found.append(f"kind is none of {', '.join(KINDS)}")
    if data.get("compute_capability") and not re.fullmatch(r"\d+\.\d", str(data["compute_capability"])):
        found.append('compute_capability is not as "9.0"')
    found += _rate_problems(data.get("peak", []), "unit", COMPUTE_UNITS)
    found += _rate_problems(data.get("bandwidth", []), "level", MEMORY_LEVELS)
    found += _rate_problems(data.get("link", []), "to", LINK_ENDS)
    if not data.get("bandwidth"):
        found.append("no bandwidth")
    return found


def _rate_problems(entries: list[dict[str, Any]], key: str, allowed: Iterable[str]) -> list[str]:
    found = []
    seen = set()
    for entry in entries:
        unit, value, sparse = entry.get(key), entry.get("value"), entry.get("sparse")
        if unit not in tuple(allowed):
            found.append(f"{unit} is no {key}")
        if unit in seen:
            found.append(f"{unit} stands twice")
        seen.add(unit)
        if not isinstance(value, (int, float)) or not is_plausible(value):
            found.append(f"the value of {unit} is not a plausible rate: {value}")
        elif sparse is not None and not 1.9 < sparse / value < 2.1:
            found.append(f"the sparse rate of {unit} is not about twice the dense one")
        elif entry.get("mma_sync") is not None and not 0.5 < entry["mma_sync"] / value < 1:
            found.append(f"the rate of mma.sync of {unit} is not between half and all of the dense one")
        elif entry.get("sustained") is not None and not 0 < entry["sustained"] / value <= 1:
            found.append(f"the sustained rate of {unit} is not below the dense one")
    return found


def is_plausible(rate: float) -> bool:
    """True if a rate in FLOP/s, OP/s or B/s is plausible; outside, the unit was probably mistaken."""
    return 1e9 < rate < 1e17


def find_machine(name: str) -> Machine:
    """Find a machine by id (also without dashes), full name or device name, ignoring case, or a family's usual board.

    Raises `WrongUsage` with similar names if there is none.
    """
    wanted = _folded(name)
    for machine in machines().values():
        if wanted in {_folded(machine.id), _folded(machine.name), *map(_folded, machine.device_names)}:
            return machine
    for machine in machines().values():
        if wanted in machine.short_names or wanted == machine.id.replace("-", ""):
            return machine
    begun = [machine_id for machine_id in machines() if _folded(machine_id).startswith(wanted)]
    near = near_names(wanted, [_folded(machine_id) for machine_id in machines()], most=4, cutoff=0.4)
    ids = begun or [machine_id for machine_id in machines() if _folded(machine_id) in near]
    raise WrongUsage(
        f"There is no machine called {name}.",
        f"Near names: {', '.join(ids)}." if ids else "",
        "See ncu-bench machines for all of them.",
    )


def which_board(name: str, machine: Machine) -> list[str]:
    """The note on the board that `find_machine` chose for a family name; [] for any other name."""
    if _folded(name) not in machine.short_names:
        return []
    known = machines()
    family = min((one for each in known.values() for one in each.short_names if machine.id.startswith(one)), key=len)
    others = [one for one in known if one.startswith(f"{family}-") and one != machine.id]
    rest = f"; others are {', '.join(others)}" if others else ""
    return [f"{name} is taken as {machine.id} ({machine.name}){rest}"]


def machine_of_device(device_name: str | None) -> Machine | None:
    """The data-sheet machine whose `device_names` contain `device_name`; None if there is none."""
    if not device_name:
        return None
    wanted = _folded(device_name)
    named = (one for one in machines().with_words(device_name) if wanted in map(_folded, one.device_names))
    return next((one for one in named if not one.measured), None)


def measured_machines(device_name: str | None) -> list[Machine]:
    """The measured machines of a device name, with any number of threads; those measured quickly last."""
    if not device_name:
        return []
    wanted = _folded(device_name)
    named = (one for one in machines().with_words(device_name) if wanted in map(_folded, one.device_names))
    found = [one for one in named if one.measured]
    return sorted(found, key=lambda one: one.measured_quickly)


def machines_of_capability(compute_capability: str | None) -> list[Machine]:
    """The machines of a compute capability; the ones that may represent it come first."""
    every = machines().values() if compute_capability is None else machines().with_words(compute_capability)
    found = [one for one in every if one.compute_capability == compute_capability]
    return sorted(found, key=lambda machine: not machine.stands_for_compute_capability)


@lru_cache(maxsize=256)
def _folded(name: str) -> str:
    return re.sub(r"[\s_-]+", "-", name.strip().casefold())
