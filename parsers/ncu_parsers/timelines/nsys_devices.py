"""Which GPU a timeline's device numbers mean: name, chip and compute capability."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ncu_parsers.timelines.nsys_database import MISSING, Database, Integers

TABLE, OLD_TABLE, BY_PROCESS = "TARGET_INFO_GPU", "TARGET_INFO_CUDA_GPU", "TARGET_INFO_CUDA_DEVICE"


@dataclass(frozen=True)
class TracedGpu:
    """One GPU of the machine."""

    name: str | None
    chip: str | None
    compute_capability: str | None


@dataclass
class Known:
    """The GPU of each operation: a number into the lists, -1 where it is not known."""

    code: Integers
    names: list[str | None] = field(default_factory=list)
    chips: list[str | None] = field(default_factory=list)
    compute_capabilities: list[str | None] = field(default_factory=list)


@dataclass
class Devices:
    """The GPUs of the machine by their number there, and which of them a process calls by which CUDA number.

    A process that was shown some GPUs only (CUDA_VISIBLE_DEVICES) counts those from 0. `table` is where they were read,
    empty where the file has none.
    """

    table: str
    gpus: dict[int, TracedGpu]
    by_process: dict[tuple[int, int], int]
    by_cuda_number: dict[int, int]

    def of(self, process: Integers, device: Integers) -> Known:
        """The GPU behind each pair of process and CUDA device number."""
        pairs, code = np.unique(np.stack([process, device]), axis=1, return_inverse=True)
        result = Known(code.reshape(-1).astype(np.int64))
        for one, number in pairs.T.tolist():
            place = self.by_process.get((one, number), self.by_cuda_number.get(number, number))
            gpu = self.gpus.get(place) or TracedGpu(None, None, None)
            result.names.append(gpu.name)
            result.chips.append(gpu.chip)
            result.compute_capabilities.append(gpu.compute_capability)
        return result


def read_devices(database: Database) -> Devices:
    """The GPUs that the file describes."""
    if TABLE in database.tables:
        return _new(database)
    if OLD_TABLE in database.tables:
        return _old(database)
    return Devices("", {}, {}, {})


def _new(database: Database) -> Devices:
    numbers = database.integers(TABLE, "id", "cuDevice", "computeMajor", "computeMinor")
    names, chips = database.texts(TABLE, "name"), database.texts(TABLE, "chipName")
    capabilities = _capabilities(numbers["computeMajor"], numbers["computeMinor"])
    places = numbers["id"].tolist()
    gpus = {
        place: TracedGpu(names[row] if names else None, chips[row] if chips else None, capabilities[row])
        for row, place in enumerate(places)
    }
    cuda_numbers = dict(zip(numbers["cuDevice"].tolist(), places, strict=True))
    cuda_numbers.pop(MISSING, None)
    pairs = database.integers(BY_PROCESS, "pid", "cudaId", "gpuId")
    keys = zip(pairs["pid"].tolist(), pairs["cudaId"].tolist(), strict=True)
    return Devices(TABLE, gpus, dict(zip(keys, pairs["gpuId"].tolist(), strict=True)), cuda_numbers)


def _old(database: Database) -> Devices:
    """The table of 2020 and early 2021, whose numbers are CUDA's."""
    numbers = database.integers(OLD_TABLE, "deviceId", "computeCapabilityMajor", "computeCapabilityMinor")
    names = database.texts(OLD_TABLE, "name")
    capabilities = _capabilities(numbers["computeCapabilityMajor"], numbers["computeCapabilityMinor"])
    gpus = {
        number: TracedGpu(names[row] if names else None, None, capabilities[row])
        for row, number in enumerate(numbers["deviceId"].tolist())
    }
    return Devices(OLD_TABLE, gpus, {}, {})


def _capabilities(major: Integers, minor: Integers) -> list[str | None]:
    pairs = zip(major.tolist(), minor.tolist(), strict=True)
    return [f"{one}.{other}" if one > 0 and other >= 0 else None for one, other in pairs]
