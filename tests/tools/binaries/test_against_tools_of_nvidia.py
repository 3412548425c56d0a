"""Some hundred kernels compiled on a CPU: what is read equals what ptxas and nvdisasm of PyPI's `triton` print."""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from ncu_parsers.binaries.code_files import CodeReading, kernels_in
from ncu_parsers.binaries.code_of_report import launched_kernels
from ncu_parsers.binaries.cubin import Cubin
from ncu_parsers.binaries.kernel_resources import KernelResources
from ncu_parsers.binaries.resource_usage_text import resources_in_text
from ncu_parsers.derived.opcode_lists import named_instances
from ncu_parsers.ncu_rep import code_in
from ncu_parsers.ncu_rep.sass import sass_by_nvdisasm
from ncu_parsers.sources.sources import Source

from ncu_tools.binaries import kernel_listing
from ncu_tools.binaries.kernel_listing import listing_of
from ncu_tools.binaries.static_facts import facts_of
from ncu_tools.kernels.source.instruction_mix import COLUMNS
from tests.conftest import ROOT
from tests.support.reports import MEASURED, needs_shared_reports, shared_reports, table_of

pytestmark = pytest.mark.nightly

LEAST_KERNELS = 200
TOOLS = Path("backends") / "nvidia" / "bin"
Printed = tuple[str, int | None, int | None, tuple[int, int] | None, int | None, int | None]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with triton: this one, or one that is made for these tests."""
    if find_spec("triton") is not None:
        return sys.executable
    folder = tmp_path_factory.mktemp("triton")
    venv.create(folder, with_pip=True)
    found = str(folder / "bin" / "python")
    subprocess.run([found, "-m", "pip", "install", "--quiet", "triton"], check=True)
    return found


@pytest.fixture(scope="module")
def tools(python: str) -> Path:
    where = [python, "-c", "import triton, pathlib; print(pathlib.Path(triton.__file__).parent)"]
    return Path(subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip()) / TOOLS


@pytest.fixture(scope="module")
def compiled(python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kernels")
    subprocess.run([python, "-m", "tests.support.triton_kernels", str(folder)], cwd=ROOT, check=True)
    return folder


@pytest.fixture(scope="module", autouse=True)
def _with_nvdisasm(tools: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (sass_by_nvdisasm, kernel_listing):
            patch.setattr(module, "tool_path", lambda: str(tools / "nvdisasm"))
        yield


def printed(kernel: KernelResources) -> Printed:
    spills = kernel.spills
    both = None if spills is None else (spills.store_bytes, spills.load_bytes)
    return kernel.name, kernel.registers, kernel.stack_bytes, both, kernel.shared_bytes, kernel.barriers


def assembled(ptx: Path, tools: Path, cubin: Path) -> str | None:
    """What ptxas -v prints of a PTX file that it compiles; the newer of the two takes what the older does not."""
    target = re.search(r"\.target (\w+)", ptx.read_text("utf-8"))
    assert target is not None
    for tool in ("ptxas", "ptxas-blackwell"):
        command = [str(tools / tool), "-v", f"-arch={target[1]}", str(ptx), "-o", str(cubin)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout + done.stderr
    return None


def test_registers_stack_spills_shared_memory_and_barriers_equal_those_of_ptxas(
    compiled: Path, tools: Path, tmp_path: Path
) -> None:
    compared = spilled = 0
    for ptx in sorted(compiled.glob("*.ptx")):
        text = assembled(ptx, tools, tmp_path / "one.cubin")
        assert text is not None, ptx.name
        wanted = [printed(one) for one in resources_in_text(text)]
        assert [printed(one) for one in Cubin((tmp_path / "one.cubin").read_bytes()).kernels()] == wanted, ptx.name
        compared += len(wanted)
        spilled += any(one[3] != (0, 0) for one in wanted)
    assert compared >= LEAST_KERNELS
    assert spilled >= 20


def test_opcode_counts_equal_those_that_nvdisasm_prints(compiled: Path, tools: Path) -> None:
    compared = 0
    for path in sorted(compiled.glob("*.cubin")):
        done = subprocess.run([str(tools / "nvdisasm"), "-c", str(path)], capture_output=True, text=True, check=True)
        words = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", done.stdout)
        (kernel,) = kernels_in(path, CodeReading())
        listing = listing_of(kernel)
        assert listing is not None, path.name
        assert facts_of(listing).by_opcode == Counter(words), path.name
        compared += 1
    assert compared >= LEAST_KERNELS


def test_spilling_instructions_are_the_local_accesses_of_kernels_without_local_arrays(compiled: Path) -> None:
    for path in sorted(compiled.glob("*.cubin")):
        (kernel,) = kernels_in(path, CodeReading())
        listing = listing_of(kernel)
        assert listing is not None
        local = {
            offset
            for offset, one in zip(listing.offsets, listing.instructions, strict=True)
            if one is not None and one.opcode in ("LDL", "STL")
        }
        assert kernel.resources.spills is not None
        assert set(kernel.resources.spills.offsets) >= local, path.name


@needs_shared_reports
def test_opcodes_that_launches_of_real_reports_executed_stand_in_the_code(tmp_path: Path) -> None:
    compared = 0
    for report in (*shared_reports("ncu_rep"), *shared_reports("ncu_rep_full"), MEASURED / "conflicts.ncu-rep"):
        table = table_of(report)
        column = COLUMNS[-1]
        if table is None or column not in table.column_names:
            continue
        executed = table[column].to_pylist()
        launched = launched_kernels(Source(str(report)))
        cubins = [code.cubin for code in code_in(Source(str(report))) if code.cubin]
        for number, cubin in enumerate(cubins):
            path = tmp_path / f"{number}.cubin"
            path.write_bytes(cubin)
            for kernel in kernels_in(path, CodeReading()):
                counts = [
                    text
                    for one, text in zip(launched, executed, strict=True)
                    if one.mangled == kernel.resources.name and text
                ]
                listing = listing_of(kernel) if counts else None
                static = {one.split(".")[0] for one in facts_of(listing).by_opcode} if listing is not None else set()
                for text in counts if listing is not None else ():
                    assert set(named_instances(text) or {}) <= static, (report.name, kernel.resources.name)
                    compared += 1
            kernel_listing._disassembly.cache_clear()
    assert compared >= 5
