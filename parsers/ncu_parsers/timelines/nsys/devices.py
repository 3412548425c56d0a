"""Name, chip and compute capability of the devices in a timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ncu_parsers.timelines.nsys.database import MISSING, Database, Integers

TABLE, OLD_TABLE, BY_PROCESS = "TARGET_INFO_GPU", "TARGET_INFO_CUDA_GPU", "TARGET_INFO_CUDA_DEVICE"


@dataclass(frozen=True)
class TracedGpu:
    """One GPU of the machine; None if the file does not contain the value."""

    name: str | None
    chip: str | None
    compute_capability: str | None
    uuid: str | None = None


@dataclass
class Known:
    """The GPU of each operation: `code` (int64, one per operation) indexes the lists.

    `places` are the GPUs' ids; `MISSING` for a GPU that is not described.
    """

    code: Integers
    names: list[str | None] = field(default_factory=list)
    chips: list[str | None] = field(default_factory=list)
    compute_capabilities: list[str | None] = field(default_factory=list)
    uuids: list[str | None] = field(default_factory=list)
    places: list[int] = field(default_factory=list)

    @property
    def place(self) -> Integers:
        """The id of each operation's GPU."""
        return np.array(self.places, np.int64)[self.code]


@dataclass
class Devices:
    """The GPUs of a machine by index, and the index of each process's CUDA device number.

    A process restricted to some GPUs (CUDA_VISIBLE_DEVICES) numbers them from 0. `table` is the table they were read
    from, "" if the file has none.
    """

    table: str
    gpus: dict[int, TracedGpu]
    by_process: dict[tuple[int, int], int]
    by_cuda_number: dict[int, int]

    def of(self, process: Integers, device: Integers) -> Known:
        """The GPU of each pair of process and CUDA device number (int64, one per operation)."""
        processes, of_process = np.unique(process, return_inverse=True)
        numbers, of_number = np.unique(device, return_inverse=True)
        pairs, code = np.unique(of_process * len(numbers) + of_number, return_inverse=True)
        result = Known(code.astype(np.int64))
        for pair in pairs.tolist():
            one, number = int(processes[pair // len(numbers)]), int(numbers[pair % len(numbers)])
            place = self._place(one, number)
            gpu = self.gpus.get(place) or TracedGpu(None, None, None)
            result.places.append(place if place in self.gpus else MISSING)
            result.names.append(gpu.name)
            result.chips.append(gpu.chip)
            result.compute_capabilities.append(gpu.compute_capability)
            result.uuids.append(gpu.uuid)
        return result

    def numbers(self, gpus: Sequence[tuple[int, int]]) -> dict[tuple[int, int], int]:
        """The GPU's id of each process and CUDA device number."""
        return {gpu: self._place(*gpu) for gpu in gpus}

    def _place(self, process: int, device: int) -> int:
        return self.by_process.get((process, device), self.by_cuda_number.get(device, device))


def read_devices(database: Database) -> Devices:
    """Read the GPUs that the file describes."""
    if TABLE in database.tables:
        return _new(database)
    if OLD_TABLE in database.tables:
        return _old(database)
    return Devices("", {}, {}, {})


def _new(database: Database) -> Devices:
    numbers = database.integers(TABLE, "id", "cuDevice", "computeMajor", "computeMinor")
    names, chips, uuids = (database.texts(TABLE, column) for column in ("name", "chipName", "uuid"))
    capabilities = _capabilities(numbers["computeMajor"], numbers["computeMinor"])
    places = numbers["id"].tolist()
    gpus = {
        place: TracedGpu(
            names[row] if names else None,
            chips[row] if chips else None,
            capabilities[row],
            uuids[row] if uuids else None,
        )
        for row, place in enumerate(places)
    }
    cuda_numbers = dict(zip(numbers["cuDevice"].tolist(), places, strict=True))
    cuda_numbers.pop(MISSING, None)
    pairs = database.integers(BY_PROCESS, "pid", "cudaId", "gpuId")
    keys = zip(pairs["pid"].tolist(), pairs["cudaId"].tolist(), strict=True)
    return Devices(TABLE, gpus, dict(zip(keys, pairs["gpuId"].tolist(), strict=True)), cuda_numbers)


def _old(database: Database) -> Devices:
    """Read the table of 2020 and early 2021, which contains CUDA device numbers."""
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
