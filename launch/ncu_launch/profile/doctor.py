"""Check what on this machine would prevent profiling; each check says what it found and what to type.

`gather` queries the machine without changing it; the checks are pure functions of its result. PyTorch is examined in a
child process, so that a crash while importing it is a finding instead of the end of the doctor.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ncu_launch.profilers.command_line import Version
from ncu_launch.profilers.installed_tools import Gpu, Tool, ask, find_tool, gpus, mig_modes, sampled_gpus_by
from ncu_launch.profilers.subprocesses import OWN_PYTHON
from ncu_launch.profilers.tool_failures import recognise

OK, PROBLEM, UNKNOWN = "ok", "problem", "unknown"

INSTALL_MODELS = "pip install '.[models]'"
DRIVER_PARAMETERS = Path("/proc/driver/nvidia/params")
DEBIAN_NSYS = Path("/usr/lib/x86_64-linux-gnu/nsight-systems")
DEBIAN_IMPORTER = Path("/usr/lib/nsight-systems/host-linux-x64")
LINK_IMPORTER = f"ln -sfn {DEBIAN_IMPORTER} {DEBIAN_NSYS / DEBIAN_IMPORTER.name}"
LOCK_FILE = "nsight-compute-lock"

TENSOR_COUNTERS: Version = (2023, 2)
NVTX_ASKS_FIRST = (0, 2, 12)  # since 0.2.12, nvtx first asks if a tool is attached; an old nsys says no
NSYS_WITHOUT_NVTX: Version = (2022, 4)  # the newest nsys known to say no
NSYS_WITH_NVTX: Version = (2024, 1)  # the oldest nsys known to say yes; in between is unknown
LEAST_FREE_BYTES = 10**9
CAP_SYS_ADMIN = 1 << 21

_RESULT = "ncu-bench-doctor:"
_CHILD = f"""import json, sys
sys.path[:] = [folder for folder in sys.path if folder] + sys.argv[1:]
from ncu_launch.profile.doctor import describe_torch, describe_torchvision
from ncu_launch.targets.quick_imports import quick_imports
for describe in (describe_torch, describe_torchvision):
    with quick_imports():
        print("\\n{_RESULT}" + json.dumps(describe()), flush=True)
"""


@dataclass(frozen=True)
class Check:
    """The result of one check: `ok`, `problem` or `unknown`, what was found, and what to type."""

    name: str
    status: str
    found: str
    advice: str = ""


@dataclass(frozen=True)
class Models:
    """PyTorch and torchvision as a child process found them; a version is None if the package is not installed.

    `operators`: whether torchvision's compiled operators load; None if unknown. `samples`: whether PyTorch's profiler
    has the classes to sample GPU metrics; None without PyTorch. An error is "" unless importing the package failed.
    """

    torch: str | None = None
    cuda: str | None = None
    rocm: str | None = None
    visible_gpus: int = 0
    torch_error: str = ""
    torchvision: str | None = None
    operators: bool | None = None
    torchvision_error: str = ""
    samples: bool | None = None


@dataclass(frozen=True)
class Importer:
    """Location of the component that nsys uses to convert raw events to a report; Debian's package misplaces it."""

    debian: bool
    installed: bool
    linked: bool


@dataclass(frozen=True)
class Lock:
    """ncu's lock file in the temporary folder; `owner` (uid) is None if there is no file or it cannot be examined."""

    path: str
    owner: int | None = None
    error: str = ""


@dataclass(frozen=True)
class MachineFacts:
    """Input of the checks. None means that this machine does not report the value.

    `user` is the effective uid, `capabilities` the bit mask of effective capabilities, `driver_parameters` the text of
    /proc/driver/nvidia/params, `gpu_metrics` what nsys prints about the GPUs that it can sample.
    """

    ncu: Tool | None
    nsys: Tool | None
    nvidia_smi: bool
    gpus: tuple[Gpu, ...]
    driver_parameters: str | None
    user: int
    capabilities: int | None
    processes: frozenset[str] | None
    mig_modes: tuple[str, ...] | None
    models: Models
    nvtx: str | None
    importer: Importer
    free_bytes: int | None
    lock: Lock
    gpu_metrics: str | None


def gather() -> MachineFacts:
    """Collect the input of every check from this machine."""
    nsys = find_tool("nsys")
    return MachineFacts(
        ncu=find_tool("ncu"),
        nsys=nsys,
        nvidia_smi=shutil.which("nvidia-smi") is not None,
        gpus=tuple(gpus()),
        driver_parameters=_text(DRIVER_PARAMETERS),
        user=os.geteuid(),
        capabilities=capabilities(_text(Path("/proc/self/status"))),
        processes=processes(),
        mig_modes=mig_modes(),
        models=ask_models(),
        nvtx=_installed("nvtx"),
        importer=find_importer(nsys),
        free_bytes=free_bytes(Path()),
        lock=find_lock(Path(os.environ.get("TMPDIR") or "/tmp")),  # noqa: S108  where ncu itself puts it
        gpu_metrics=sampled_gpus_by(nsys),
    )


def examine(facts: MachineFacts) -> list[Check]:
    """Run every check, most important first."""
    counters = check_counter_permission(facts.driver_parameters, facts.user, facts.capabilities)
    return [
        check_ncu(facts.ncu),
        check_nsys(facts.nsys),
        check_gpus(facts.gpus, facts.nvidia_smi),
        counters,
        check_other_profilers(facts.processes),
        check_sharing(facts.mig_modes, facts.processes),
        check_torch(facts.models, facts.gpus),
        check_torchvision(facts.models),
        check_samples_of_torch(facts.models, counters),
        check_nvtx(facts.nvtx, facts.nsys),
        check_importer(facts.nsys, facts.importer),
        check_gpu_metrics(facts.gpu_metrics),
        check_disk(facts.free_bytes),
        check_lock(facts.lock, facts.user),
    ]


def check_ncu(ncu: Tool | None) -> Check:
    """Check that ncu is installed and new enough to count tensor operations."""
    name = "ncu"
    if ncu is None:
        return Check(name, PROBLEM, "not on PATH, or does not start", "install Nsight Compute and put ncu on PATH")
    if ncu.version is None:
        return Check(name, UNKNOWN, f"{ncu.path} does not say its version", f"{ncu.path} --version")
    if ncu.version < TENSOR_COUNTERS:
        advice = "to count tensor operations, install 2023.2 or newer"
        return Check(name, OK, f"{_title(ncu)}, which has no counters of tensor operations", advice)
    return Check(name, OK, _title(ncu))


def check_nsys(nsys: Tool | None) -> Check:
    """Check that nsys is installed."""
    name = "nsys"
    if nsys is None:
        advice = "for timelines (profile --tool nsys), install Nsight Systems and put nsys on PATH"
        return Check(name, PROBLEM, "not on PATH, or does not start", advice)
    if nsys.version is None:
        return Check(name, UNKNOWN, f"{nsys.path} does not say its version", f"{nsys.path} --version")
    return Check(name, OK, _title(nsys))


def check_gpus(listed: tuple[Gpu, ...], nvidia_smi: bool) -> Check:
    """Check the driver and the GPUs that it lists."""
    name = "driver and GPUs"
    if not listed:
        found = "nvidia-smi lists no GPU" if nvidia_smi else "nvidia-smi is not on PATH"
        advice = "profiling falls back to the operator collector; for hardware counters, install the NVIDIA driver"
        return Check(name, PROBLEM, found, "see what nvidia-smi says; " + advice if nvidia_smi else advice)
    titles = [gpu.name + (f" (CC {gpu.compute_capability})" if gpu.compute_capability else "") for gpu in listed]
    counts = [f"{titles.count(title)} × {title}" for title in dict.fromkeys(titles)]
    return Check(name, OK, f"{', '.join(counts)}, driver {listed[0].driver or 'unknown'}")


def check_counter_permission(parameters: str | None, user: int, effective: int | None) -> Check:
    """Check that the driver lets this user read performance counters."""
    name = "counter permission"
    match = re.search(r"^RmProfilingAdminOnly:\s*(\d+)", parameters or "", re.MULTILINE)
    if match is None:
        where = "does not exist" if parameters is None else "does not name RmProfilingAdminOnly"
        return Check(name, UNKNOWN, f"{DRIVER_PARAMETERS} {where}")
    if match[1] == "0":
        return Check(name, OK, "every user may read the counters")
    restricted = "only administrators may read the counters"
    if effective is not None and effective & CAP_SYS_ADMIN:
        return Check(name, OK, f"{restricted}, and this user is one")
    if user == 0:
        # Root in a container often lacks the capability, and the driver may then refuse it like any other user.
        rights = "whose capabilities are not known" if effective is None else "but without CAP_SYS_ADMIN"
        found = f"{restricted}; this is root, {rights}"
        return Check(name, UNKNOWN, found, "if ncu says ERR_NVGPUCTRPERM, add --cap-add=SYS_ADMIN to the container")
    advice = (
        "run as root, add --cap-add=SYS_ADMIN to the container, "
        "or load the driver with NVreg_RestrictProfilingToAdminUsers=0"
    )
    return Check(name, PROBLEM, f"{restricted} (RmProfilingAdminOnly: {match[1]})", advice)


def check_other_profilers(running: frozenset[str] | None) -> Check:
    """Check for other running profilers, which may hold the counters."""
    name = "other profilers"
    if running is None:
        return Check(name, UNKNOWN, "the list of processes cannot be read")
    monitors = sorted(process for process in running if process == "nv-hostengine" or process.startswith("dcgm"))
    profilers = sorted(running & {"ncu", "nsys"})
    if not monitors and not profilers:
        return Check(name, OK, "none among the processes seen from here")
    advice = ["dcgmi profile --pause (afterwards dcgmi profile --resume)"] if monitors else []
    advice += [f"wait until {' and '.join(profilers)} is done"] if profilers else []
    return Check(name, PROBLEM, f"{', '.join(monitors + profilers)} may hold the counters", "; ".join(advice))


def check_sharing(modes: tuple[str, ...] | None, running: frozenset[str] | None) -> Check:
    """Check whether GPUs are partitioned (MIG) or shared between processes (MPS)."""
    name = "MIG and MPS"
    served = any(process.startswith("nvidia-cuda-mps") for process in running or ())
    split = "Enabled" in (modes or ())
    if split or served:
        found, advice = [], []
        if split:
            found.append("MIG is enabled: clocks cannot be locked, some metrics are shared")
            advice.append("profile with --clock-control none")
        if served:
            found.append("MPS runs: other processes may share the GPU")
            advice.append("echo quit | nvidia-cuda-mps-control")
        return Check(name, PROBLEM, "; ".join(found), "; ".join(advice))
    if modes is None:
        return Check(name, UNKNOWN, "nvidia-smi does not say whether MIG is enabled")
    if running is None:
        return Check(name, UNKNOWN, "no MIG; whether MPS runs cannot be seen")
    return Check(name, OK, "neither is in use")


def check_torch(models: Models, listed: tuple[Gpu, ...]) -> Check:
    """Check that PyTorch imports and sees the GPUs that the driver lists."""
    name = "PyTorch"
    if models.torch_error:
        return Check(name, PROBLEM, f"cannot be imported: {models.torch_error}", "install PyTorch again")
    if models.torch is None:
        return Check(name, PROBLEM, "not installed: models cannot be run", INSTALL_MODELS)
    build = f"CUDA {models.cuda}" if models.cuda else f"ROCm {models.rocm}" if models.rocm else "CPU"
    found = f"{models.torch}, {build} build"
    if models.visible_gpus:
        return Check(name, OK, f"{found}, {models.visible_gpus} GPU{'s' * (models.visible_gpus > 1)} visible")
    if not listed:
        return Check(name, OK, f"{found}, no GPU visible: models run on the CPU")
    if models.cuda is None:
        advice = "install a CUDA build of PyTorch (https://pytorch.org/get-started/locally)"
        return Check(name, PROBLEM, f"{found}, although there is a GPU: models run on the CPU", advice)
    advice = "look at CUDA_VISIBLE_DEVICES; else update the driver, or install a PyTorch for an older CUDA"
    return Check(name, PROBLEM, f"{found}, but it sees none of the GPUs that the driver lists", advice)


def check_samples_of_torch(models: Models, counters: Check) -> Check:
    """Check that PyTorch's profiler can sample GPU metrics; `counters` is the result of `check_counter_permission`."""
    name = "GPU metrics of PyTorch"
    if models.samples is None:
        return Check(name, UNKNOWN, "no PyTorch that could be asked")
    if not models.samples:
        found = f"{models.torch} has no torch.profiler.PerformanceMetricsConfig (September 2026 and newer)"
        return Check(name, OK, f"{found}: profile --tool nsys --gpu-metrics samples instead")
    if not models.visible_gpus:
        return Check(name, UNKNOWN, "its profiler can sample, and it sees no GPU")
    if counters.status == PROBLEM:
        return Check(name, PROBLEM, f"its profiler can sample, and {counters.found}", f"see {counters.name}")
    if_permitted = " where counters are permitted" if counters.status == UNKNOWN else ""
    return Check(name, OK, f"its profiler can sample{if_permitted}: profile MODEL --tool pytorch --metrics dram,sm")


def check_torchvision(models: Models) -> Check:
    """Check that torchvision's compiled operators load with this PyTorch."""
    name = "torchvision"
    if models.torch is None or models.torch_error:
        return Check(name, UNKNOWN, "not looked at without PyTorch")
    if models.torchvision_error:
        found = f"cannot be looked at: {models.torchvision_error}"
        return Check(name, PROBLEM, found, "install the torchvision that matches this PyTorch")
    if models.torchvision is None:
        return Check(name, PROBLEM, "not installed: its models cannot be run", INSTALL_MODELS)
    if models.operators is None:
        return Check(name, UNKNOWN, f"{models.torchvision}; whether its compiled operators load is not known")
    if not models.operators:
        found = f"{models.torchvision}: the compiled operators do not load with this PyTorch"
        advice = (
            "classification, segmentation and video models work all the same; "
            "for detection, install matching builds of torch and torchvision"
        )
        return Check(name, PROBLEM, found, advice)
    return Check(name, OK, f"{models.torchvision}, compiled operators load")


def check_nvtx(nvtx: str | None, nsys: Tool | None) -> Check:
    """Check that this nsys records the ranges of the installed nvtx package."""
    name = "nvtx and nsys"
    if nvtx is None:
        return Check(name, PROBLEM, "nvtx is not installed: profiles have no ranges", INSTALL_MODELS)
    if _numbers(nvtx) < NVTX_ASKS_FIRST:
        return Check(name, OK, f"nvtx {nvtx}")
    if nsys is None:
        return Check(name, OK, f"nvtx {nvtx}; no nsys to record it")
    pair = f"nvtx {nvtx}, nsys {nsys.version_text or 'of unknown version'}"
    older = "pip install nvtx==0.2.11"
    if nsys.version is not None and nsys.version <= NSYS_WITHOUT_NVTX:
        return Check(name, PROBLEM, f"{pair}: this nsys records no ranges from it", older)
    if nsys.version is None or nsys.version < NSYS_WITH_NVTX:
        found = f"{pair}: whether this nsys records its ranges is not known"
        return Check(name, UNKNOWN, found, f"if ranges are missing: {older}")
    return Check(name, OK, pair)


def check_importer(nsys: Tool | None, importer: Importer) -> Check:
    """Check that nsys finds its importer; otherwise it leaves only a .qdstrm file and still exits with 0."""
    name = "nsys importer"
    if nsys is None:
        return Check(name, UNKNOWN, "no nsys")
    if not importer.debian:
        return Check(name, OK, "not Debian's nsys, the only one known to miss it")
    if not importer.installed:
        return Check(name, UNKNOWN, f"{DEBIAN_IMPORTER} does not exist", "if nsys leaves only a .qdstrm, reinstall it")
    if not importer.linked:
        found = "Debian's nsys does not find its importer: it leaves a .qdstrm and no report"
        return Check(name, PROBLEM, found, f"as root: {LINK_IMPORTER}")
    return Check(name, OK, "found beside Debian's nsys")


def check_gpu_metrics(answer: str | None) -> Check:
    """Check that nsys may sample GPU metrics, by what it prints about the GPUs; None if it printed nothing."""
    name = "GPU metrics of nsys"
    if answer is None or "GPUs not found" in answer:
        return Check(name, UNKNOWN, "nsys finds no NVIDIA GPU to sample" if answer else "no nsys that could be asked")
    failure = recognise(answer.splitlines())
    if failure is not None:
        return Check(name, PROBLEM, failure[0].meaning, failure[0].advice)
    gpus_listed = re.findall(r"^\s*\d+: ", answer, re.MULTILINE)
    if gpus_listed:
        found = (
            f"nsys can sample {len(gpus_listed)} GPU{'s' * (len(gpus_listed) > 1)}, while neither ncu nor DCGM counts"
        )
        return Check(name, OK, found)
    return Check(name, UNKNOWN, "nsys does not say which GPUs it can sample", "nsys profile --gpu-metrics-devices=help")


def check_disk(free: int | None) -> Check:
    """Check that the current folder has room for reports."""
    name = "disk space"
    if free is None:
        return Check(name, UNKNOWN, "the current folder does not say how much is free")
    found = f"{free / 1e9:.1f} GB free in the current folder"
    if free < LEAST_FREE_BYTES:
        return Check(name, PROBLEM, found, "reports can take more than that: free some, or work in another folder")
    return Check(name, OK, found)


def check_lock(lock: Lock, user: int) -> Check:
    """Check that ncu can take its lock in the temporary folder."""
    name = "lock file"
    if lock.error:
        return Check(name, UNKNOWN, f"{lock.path} cannot be looked at: {lock.error}")
    if lock.owner is None or lock.owner == user:
        return Check(name, OK, f"{lock.path} {'does not exist' if lock.owner is None else 'is yours'}")
    found = f"{lock.path} belongs to another user (uid {lock.owner}): ncu cannot take it"
    return Check(name, PROBLEM, found, "mkdir -p ~/tmp && export TMPDIR=~/tmp")


def capabilities(status: str | None) -> int | None:
    """The effective capabilities in a /proc/PID/status, as a bit mask; None if missing."""
    match = re.search(r"^CapEff:\s*([0-9a-fA-F]+)", status or "", re.MULTILINE)
    return int(match[1], 16) if match else None


def processes(proc: Path = Path("/proc")) -> frozenset[str] | None:
    """Names of visible processes, cut to 15 characters by the kernel, without zombies; None without /proc."""
    names = set()
    seen = False
    for stat in proc.glob("[0-9]*/stat"):
        head, _, rest = (_text(stat) or "").rpartition(")")
        seen = seen or bool(head)
        if rest.split()[:1] not in ([], ["Z"], ["X"]):
            names.add(head.partition("(")[2])
    return frozenset(names) if seen else None


def find_importer(nsys: Tool | None) -> Importer:
    """The location of nsys's importer, as far as Debian's package is concerned."""
    debian = nsys is not None and Path(nsys.path).resolve().is_relative_to(DEBIAN_NSYS)
    return Importer(debian, DEBIAN_IMPORTER.exists(), (DEBIAN_NSYS / DEBIAN_IMPORTER.name).exists())


def free_bytes(folder: Path) -> int | None:
    """Bytes that the user may still write into `folder`; None if unknown."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def find_lock(folder: Path) -> Lock:
    """ncu's lock file in the temporary folder `folder`."""
    path = folder / LOCK_FILE
    try:
        return Lock(str(path), path.lstat().st_uid)
    except FileNotFoundError:
        return Lock(str(path))
    except OSError as error:
        return Lock(str(path), error=error.strerror or str(error))


def ask_models() -> Models:
    """Examine PyTorch and torchvision in a child process."""
    command = [*OWN_PYTHON, "-c", _CHILD, str(Path(__file__).parents[2])]
    return read_models(ask(command))


def read_models(answer: tuple[int, str] | None) -> Models:
    """Parse the child's output; a crash becomes the error of the package that it had not yet described."""
    if answer is None:
        return Models(torch_error="the process that tried did not start, or did not end in time")
    results: list[dict[str, Any]] = []
    other: list[str] = []
    for line in answer[1].splitlines():
        if line.startswith(_RESULT):
            results.append(json.loads(line.removeprefix(_RESULT)))
        elif line.strip():
            other.append(line.strip())
    facts = {name: value for described in results for name, value in described.items()}
    if len(results) < 2:
        ending = f"{_ending(answer[0])} {other[-1] if other else ''}".strip()
        facts["torchvision_error" if results else "torch_error"] = ending
    return Models(**facts)


def _ending(code: int) -> str:
    """Describe an exit code."""
    if code >= 0:
        return f"the process that tried ended with exit code {code}."
    try:
        return f"the process that tried was killed by {signal.Signals(-code).name}."
    except ValueError:
        return f"the process that tried was killed by signal {-code}."


def describe_torch() -> dict[str, Any]:
    """PyTorch's version, build and visible GPUs. Only for the child process, because it imports torch."""
    try:
        import torch
    except ModuleNotFoundError as error:
        return {} if error.name == "torch" else {"torch_error": _brief(error)}
    except Exception as error:  # a broken installation may raise anything
        return {"torch_error": _brief(error)}
    try:
        visible = torch.cuda.device_count() if torch.cuda.is_available() else 0
    except Exception:  # a failing driver means no visible GPU
        visible = 0
    return {
        "torch": torch.__version__, "cuda": torch.version.cuda, "rocm": torch.version.hip, "visible_gpus": visible,
        "samples": hasattr(getattr(torch, "profiler", None), "PerformanceMetricsConfig"),
    }  # fmt: skip


def describe_torchvision() -> dict[str, Any]:
    """torchvision's version and whether its operators load. Only for the child process, because it imports torch."""
    version = _installed("torchvision")
    if version is None:
        return {}
    from ncu_launch.targets.torchvision_compat import operators_load

    try:
        return {"torchvision": version, "operators": operators_load()}
    except Exception as error:  # a broken installation may raise anything
        return {"torchvision": version, "torchvision_error": _brief(error)}


def _brief(error: Exception) -> str:
    """The class of an error and the last line of its message, which is the informative one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: 0.2.12.post1 gives (0, 2, 12)."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def _title(tool: Tool) -> str:
    return f"{tool.version_text} at {tool.path}"


def _text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return None
