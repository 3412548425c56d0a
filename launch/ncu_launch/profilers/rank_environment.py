"""Where a process stands among the ranks of a distributed run, and the command that starts ranks. Nothing runs here.

A launcher tells each process its rank in environment variables of its own. The names are those of torchrun, Open MPI,
MPICH (and Intel MPI), MVAPICH and Slurm's srun, from their documentation.
"""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ncu_launch.errors import WrongUsage
from ncu_launch.files.run_files import NODES, RANKS
from ncu_launch.profilers.command_line import Version
from ncu_launch.profilers.subprocesses import OWN_PYTHON

TOOL_PER = ("rank", "node", "rank0")
"""How many instances of the tool there are: one for each rank, one around the ranks of a node, one for rank 0."""

COLLECTIVES = ("exclude", "lockstep", "include")
"""What ncu does with kernels of collectives: leave them out, start them on all ranks at once, or treat them as any."""

FIRST_DOCUMENTED_LOCKSTEP: Version = (2026, 1)
"""The oldest ncu whose documentation was read and has --communicator and --lockstep-kernel-launch."""

COLLECTIVE_KERNELS = "nccl|nvshmem|cross_device_reduce|one_shot_all_reduce|two_shot_all_reduce|multimem_"
"""Part of the function name of kernels that wait for other ranks: NCCL, NVSHMEM, PyTorch's symmetric memory, vLLM."""

_COLLECTIVE = re.compile(rf"^_?c10d\w*::|{COLLECTIVE_KERNELS}")


@dataclass(frozen=True)
class Place:
    """Where a process stands: its rank of `world_size`, its place on its host, and which launcher says so.

    `local_size`, the number of ranks on the host, is None where the launcher does not say it.
    """

    rank: int
    world_size: int
    local_rank: int
    local_size: int | None
    launcher: str
    host: str


@dataclass(frozen=True)
class Launcher:
    """The environment variables by which a launcher tells a process its place."""

    name: str
    rank: str
    world_size: str
    local_rank: str
    local_size: str


LAUNCHERS = (
    Launcher("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    Launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    Launcher("MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    Launcher(
        "MVAPICH",
        "MV2_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_SIZE",
        "MV2_COMM_WORLD_LOCAL_RANK",
        "MV2_COMM_WORLD_LOCAL_SIZE",
    ),
    Launcher("Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
)
"""The innermost first: torchrun may run inside mpirun, and mpirun inside a job of Slurm.

SLURM_STEP_NUM_TASKS is set by srun alone: a batch script has a SLURM_PROCID, too, and is no rank.
"""


def place_here(environment: Mapping[str, str], *, at_least: int = 2) -> Place | None:
    """The place that a launcher gave this process; None without one, or with fewer than `at_least` ranks."""
    for launcher in LAUNCHERS:
        rank, world_size = (_number(environment.get(name)) for name in (launcher.rank, launcher.world_size))
        if rank is not None and world_size is not None and at_least <= world_size > rank:
            local_rank = _number(environment.get(launcher.local_rank))
            return Place(
                rank,
                world_size,
                rank if local_rank is None else local_rank,
                _local_size(launcher, environment),
                launcher.name,
                socket.gethostname(),
            )
    return None


def _local_size(launcher: Launcher, environment: Mapping[str, str]) -> int | None:
    text = environment.get(launcher.local_size)
    if launcher.name != "Slurm" or text is None:
        return _number(text)
    counts = tasks_of_nodes(text)
    node = _number(environment.get("SLURM_NODEID"))
    return counts[node] if node is not None and node < len(counts) else None


def tasks_of_nodes(text: str) -> list[int]:
    """The tasks of each node, from Slurm's short form: 2(x3),1 is 2, 2, 2 and 1. Empty where it is something else."""
    counts: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if match is None:
            return []
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def starts_ranks(nproc: int | None, place: Place | None) -> bool:
    """Whether `nproc` ranks have to be started here; else this process is one of those that a launcher started.

    A launcher that put one process on each node leaves the ranks of the node to it. Raises `WrongUsage` when the
    launcher started several on this node, but not `nproc`.
    """
    if nproc is None:
        return False
    if place is None or place.local_size == 1:
        return True
    if nproc in (place.local_size, place.world_size):
        return False
    raise WrongUsage(
        f"--nproc {nproc} does not fit the {place.local_size or 'unknown number of'} processes that {place.launcher} "
        f"started on {place.host}, {place.world_size} in all.",
        advice="Leave out --nproc to profile these, or start one process per node (srun --ntasks-per-node=1) and let "
        "it start the ranks.",
    )


@dataclass(frozen=True)
class Nodes:
    """The machines of a run over several: how many, which one this is, and where the first one listens."""

    count: int
    number: int
    address: str
    port: str = "29500"


def nodes_of(place: Place | None, environment: Mapping[str, str]) -> Nodes | None:
    """The nodes that a launcher put one process on each; None for a single node.

    The first one is MASTER_ADDR, or the first of Slurm's list of nodes. Raises `WrongUsage` when neither is known.
    """
    if place is None:
        return None
    listed = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST")
    address = environment.get("MASTER_ADDR") or (first_host(listed) if listed else "")
    if not address:
        raise WrongUsage(
            f"{place.launcher} started this on {place.world_size} nodes, and the first one's address is not known.",
            advice="Set MASTER_ADDR to the host of rank 0 (and MASTER_PORT, if 29500 is taken there).",
        )
    return Nodes(place.world_size, place.rank, address, environment.get("MASTER_PORT") or "29500")


def first_host(nodes: str) -> str:
    """The first host of Slurm's short form of a list: gpu[03-05,9],login gives gpu03."""
    match = re.match(r"([^,\[]+)(?:\[([^\]]*)\])?([^,\[]*)", nodes)
    if match is None:
        return nodes
    numbers = re.split(r"[-,]", match[2])[0] if match[2] else ""
    return f"{match[1]}{numbers}{match[3]}"


def torchrun_command(nproc: int, words: Sequence[str], nodes: Nodes | None = None) -> list[str]:
    """The command that starts `words` as `nproc` ranks on this machine, as one of `nodes` where there are several."""
    command = [*OWN_PYTHON, "-m", "torch.distributed.run"]
    if nodes is None:
        command += ["--standalone"]
    else:
        command += ["--nnodes", str(nodes.count), "--node-rank", str(nodes.number)]
        command += ["--master-addr", nodes.address, "--master-port", nodes.port]
    return [*command, "--nproc-per-node", str(nproc), "--no-python", *words]


def runnable(program: Sequence[str]) -> tuple[str, ...]:
    """A program as torchrun takes it, as one that starts: a script, or -m and a module, gets this Python in front."""
    if program and (program[0] == "-m" or program[0].endswith(".py")):
        return (sys.executable, *program)
    return tuple(program)


def without_collectives(kernel: str | None = None) -> str:
    """The expression for ncu's --kernel-name that leaves out kernels of collectives, and others than `kernel`.

    NVIDIA documents `regex:^(?!foo):` for "all kernels except"; ncu 2022.3 does the same with it.
    """
    wanted = f"(?=.*(?:{kernel}))" if kernel else ""
    return f"^(?!.*(?:{COLLECTIVE_KERNELS})){wanted}"


def is_collective(kernel: str) -> bool:
    """Whether a kernel's function name, or an operator's name, is that of a collective."""
    return _COLLECTIVE.search(kernel) is not None


def rank_folder(folder: Path, rank: int | str) -> Path:
    """Where the run folder of a rank is in that of the run."""
    return folder / RANKS / str(rank)


def node_folder(folder: Path, number: int) -> Path:
    """Where the run folder of a node is in that of the run."""
    return folder / NODES / str(number)
