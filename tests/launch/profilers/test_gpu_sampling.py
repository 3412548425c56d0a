"""Power, clocks and activity of a GPU read through NVML. The GPU is a stand-in with made-up numbers: none is here."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from types import ModuleType

import pytest
from ncu_launch.errors import NcuBenchError
from ncu_launch.profilers.sampling import nvml
from ncu_launch.profilers.sampling.gpu_sampler import BY_COUNTER, BY_READINGS, sampling, summed_up
from ncu_launch.profilers.sampling.nvml import INSTALL, NvmlGpu, NvmlReading, gpm_metrics, opened_gpu, reasons_text

from tests.support import stand_in_nvml


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setitem(sys.modules, "pynvml", stand_in_nvml)
    return stand_in_nvml


@pytest.fixture
def gpu() -> Iterator[NvmlGpu]:
    with opened_gpu(stand_in_nvml.UUID) as found:
        yield found


def readings(*energies: float | None, power: float | None = 100.0, period: float = 0.5) -> list[NvmlReading]:
    return [NvmlReading(place * period, power, energy) for place, energy in enumerate(energies)]


class TestAReading:
    def test_is_in_base_units(self, gpu: NvmlGpu) -> None:
        before, found = time.monotonic(), gpu.read()
        assert (found.power_w, found.sm_clock_hz, found.memory_clock_hz) == (700, 1.755e9, 2.619e9)
        assert found.temperature_c == 61
        assert found.energy_j == pytest.approx(700 * before, rel=1e-2)
        assert reasons_text(found.reasons or 0) == "power cap"

    def test_of_an_old_driver_lacks_what_that_has_not(self, gpu: NvmlGpu, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("STAND_IN_NVML", "old")
        found = gpu.read()
        assert found.energy_j is None
        assert (found.power_w, found.temperature_c, found.reasons) == (700, 61, stand_in_nvml.POWER_CAP)

    def test_by_an_old_package_without_a_function_lacks_its_value(
        self, gpu: NvmlGpu, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delattr(stand_in_nvml, "nvmlDeviceGetTotalEnergyConsumption")
        assert gpu.read().energy_j is None

    def test_names_every_reason_and_no_idle_gpu(self) -> None:
        assert reasons_text(0x1) == "none"
        assert reasons_text(0x201) == "board limit"
        assert reasons_text(0x1804) == "power cap, unknown (0x1800)"
        assert reasons_text(0x4 | 0x20) == "power cap, software thermal slowdown"


class TestAGpuThatCannotBeOpened:
    def test_without_the_package_says_what_installs_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", None)
        with pytest.raises(NcuBenchError) as caught, opened_gpu("0"):
            pass
        assert INSTALL in str(caught.value)

    def test_without_a_driver_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("STAND_IN_NVML", "no-driver")
        with pytest.raises(NcuBenchError, match="NVML Shared Library Not Found"), opened_gpu("0"):
            pass

    @pytest.mark.parametrize("device", ["3", "GPU-of-another-machine"])
    def test_under_a_wrong_name_is_named(self, device: str) -> None:
        with pytest.raises(NcuBenchError, match=f"NVML has no GPU {device}"), opened_gpu(device):
            pass


class TestGpm:
    def test_gives_means_between_two_samples_in_base_units(self, gpu: NvmlGpu) -> None:
        with gpu.gpm() as so_far:
            time.sleep(0.01)
            found = so_far()
        assert found["gpm_tensor_active_pct"] == 61.25
        assert found["gpm_pcie_rx_bytes_per_s"] == 3 * 2**20

    def test_gives_nothing_of_what_a_gpu_does_not_count(self, gpu: NvmlGpu) -> None:
        with gpu.gpm() as so_far:
            time.sleep(0.01)
            assert "gpm_fp64_pct" not in so_far()

    def test_gives_nothing_on_a_gpu_without_it(self, gpu: NvmlGpu, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("STAND_IN_NVML", "old")
        with gpu.gpm() as so_far:
            assert so_far() == {}

    def test_asks_for_metrics_that_are_in_their_units(self) -> None:
        for name, entry in gpm_metrics().items():
            traffic = name.endswith("_bytes_per_s")
            assert entry["unit"] == ("byte/s" if traffic else "%")
            assert entry.get("factor", 1) == (2**20 if traffic else 1)
        assert len({entry["id"] for entry in gpm_metrics().values()}) == len(gpm_metrics())


class TestMeanPower:
    def test_is_by_the_counter_between_its_first_and_last_step(self) -> None:
        found = summed_up(readings(5, 5, 105, 105, 205, 305, 305), {})  # 100 J in each half second but one
        assert (found.power_w, found.power_basis) == (pytest.approx(200 / 1.5), BY_COUNTER)

    def test_without_a_counter_is_that_of_readings_after_the_first_second(self) -> None:
        early = [NvmlReading(0.0, 50.0), NvmlReading(0.5, 60.0)]
        found = summed_up([*early, NvmlReading(1.0, 300.0), NvmlReading(1.5, 400.0)], {})
        assert (found.power_w, found.power_basis) == (350, BY_READINGS)

    @pytest.mark.parametrize("energies", [(5, 5, 5, 5), (900, 950, 2, 1)], ids=["stands still", "starts again"])
    def test_by_a_counter_that_tells_nothing_is_that_of_readings(self, energies: tuple[float, ...]) -> None:
        assert summed_up(readings(*energies), {}).power_basis == BY_READINGS

    def test_of_less_than_a_second_of_readings_alone_is_not_known(self) -> None:
        found = summed_up(readings(None, None), {})
        assert (found.power_w, found.power_basis, found.energy_j) == (None, None, None)


class TestSampling:
    def test_reads_at_a_rate_and_says_it(self, gpu: NvmlGpu) -> None:
        with sampling(gpu, period_s=0.02) as sampler:
            time.sleep(1.0)
        found = sampler.summary
        assert found is not None
        assert found.power_w == pytest.approx(700, rel=0.25)
        assert (found.sm_clock_hz, found.temperature_c, found.throttling) == (1.755e9, 61, "power cap")
        assert found.seconds >= 1.0
        assert found.hz == pytest.approx((found.readings - 1) / found.seconds)
        assert found.readings > 2
        assert found.gpm["gpm_dram_pct"] == 33
        assert found.energy_j == pytest.approx((found.power_w or 0) * found.seconds)

    def test_ends_with_its_block_also_when_that_fails(self, gpu: NvmlGpu) -> None:
        with pytest.raises(RuntimeError, match="the program"), sampling(gpu, period_s=0.01) as sampler:
            raise RuntimeError("the program")
        number = len(sampler.readings)
        time.sleep(0.05)
        assert len(sampler.readings) == number >= 2

    def test_without_two_readings_has_no_summary(self) -> None:
        assert nvml.UNTHROTTLED == "none"
        reading = NvmlReading(0.0, 1.0)
        assert summed_up([reading, reading], {}).hz is None
