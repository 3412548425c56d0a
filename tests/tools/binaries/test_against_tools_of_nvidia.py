"""Some hundred kernels compiled on a CPU: what is read equals what ptxas and nvdisasm of PyPI's `triton` print."""

from __future__ import annotations

import gzip
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
from ncu_parsers.binaries.cubin import Cubin
from ncu_parsers.binaries.kernel_resources import KernelResources
from ncu_parsers.binaries.licences import library_of
from ncu_parsers.binaries.resource_usage_text import resources_in_text
from ncu_parsers.ncu_rep import code_in
from ncu_parsers.ncu_rep.sass import sass_by_nvdisasm
from ncu_parsers.ncu_rep.sass.sass_by_package import is_installed, texts_by_package
from ncu_parsers.ncu_rep.sass.sass_text import full_opcode
from ncu_parsers.sources.sources import Source

from ncu_tools.binaries import kernel_listing
from ncu_tools.binaries.kernel_listing import CodeListing, listing_of
from ncu_tools.binaries.static_facts import facts_of
from tests.conftest import ROOT
from tests.support.reports import needs_shared_reports, reports_with_code

pytestmark = pytest.mark.nightly

LEAST_KERNELS = 200
needs_package = pytest.mark.skipif(not is_installed(), reason="ncu-report is not installed (the extra ncu-rep)")
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
@needs_package
def test_opcodes_of_kernels_in_real_reports_equal_those_of_nvidias_package(tmp_path: Path) -> None:
    kernels = instructions = 0
    for report in reports_with_code():
        opened = uncompressed(report, tmp_path)
        for name, theirs in texts_by_package(opened).items():
            if library_of("", name):  # the licence forbids a look
                continue
            ours = next(listings(name, opened, tmp_path), None)
            kernel_listing._disassembly.cache_clear()
            assert ours is not None, (report.name, name)
            first = min(theirs)
            pairs = {address - first: full_opcode(text) for address, text in theirs.items()}
            by_offset = dict(zip(ours.offsets, map(full_opcode, ours.texts), strict=True))
            assert {offset: by_offset.get(offset) for offset in pairs} == pairs, (report.name, name)
            kernels += 1
            instructions += len(pairs)
    print(f"{kernels} kernels, {instructions:,} instructions")
    assert kernels >= 60


def uncompressed(report: Path, folder: Path) -> Path:
    content = report.read_bytes()
    path = folder / "report.ncu-rep"
    path.write_bytes(gzip.decompress(content) if report.suffix == ".gz" else content)
    return path


def listings(name: str, report: Path, folder: Path) -> Iterator[CodeListing]:
    """The instructions of a kernel in the cubins that a report carries."""
    for number, code in enumerate(code_in(Source(str(report)))):
        path = folder / f"{number}.cubin"
        path.write_bytes(code.cubin)
        for kernel in kernels_in(path, CodeReading()) if code.cubin else ():
            if kernel.resources.name == name and (found := listing_of(kernel)) is not None:
                yield found
