"""The rank of this process in a distributed run, and the command that starts ranks. Nothing runs here.

Launchers pass rank and world size in environment variables. The names are those documented for torchrun, Open MPI,
MPICH (and Intel MPI), MVAPICH and Slurm's srun.
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
"""Instances of the profiler: one per rank, one around all ranks of a node, or one on rank 0."""

COLLECTIVES = ("exclude", "lockstep", "include")
"""Treatment of collective kernels by ncu: exclude, start on all ranks in lockstep, or profile like other kernels."""

FIRST_DOCUMENTED_LOCKSTEP: Version = (2026, 1)
"""The oldest ncu whose documentation lists --communicator and --lockstep-kernel-launch."""

COLLECTIVE_KERNELS = "nccl|nvshmem|cross_device_reduce|one_shot_all_reduce|two_shot_all_reduce|multimem_"
"""Matches function names of kernels that wait for other ranks: NCCL, NVSHMEM, PyTorch symmetric memory, vLLM."""


@dataclass(frozen=True)
class Place:
    """The rank of a process, its world size, its rank on the host, and the launcher that set them.

    If the launcher does not pass them, `local_rank` is `rank`, and `local_size`, the number of ranks on the host, None.
    """

    rank: int
    world_size: int
    local_rank: int
    local_size: int | None
    launcher: str
    host: str


@dataclass(frozen=True)
class Launcher:
    """The environment variables in which a launcher passes the rank."""

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
"""Innermost first: torchrun may run inside mpirun, and mpirun inside a Slurm job.

Only srun sets SLURM_STEP_NUM_TASKS: a batch script also has SLURM_PROCID, but is no rank.
"""


def place_here(environment: Mapping[str, str], *, at_least: int = 2) -> Place | None:
    """The place read from `environment`; None without a launcher, or with fewer than `at_least` ranks."""
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
    """Expand Slurm's task counts per node: 2(x3),1 gives [2, 2, 2, 1]. [] if the text has another form."""
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
    """True if this process must start `nproc` ranks itself; False if a launcher already started this process as a rank.

    If a launcher started one process per node, that process starts the ranks. Raises `WrongUsage` if the launcher
    started another number of processes on this node, or an unknown one, unless `nproc` is the world size.
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
    """The nodes of a multi-node run: their count, the index of this node, and the address of the first."""

    count: int
    number: int
    address: str
    port: str = "29500"


def nodes_of(place: Place | None, environment: Mapping[str, str]) -> Nodes | None:
    """The nodes on which a launcher started one process each; None for a single node.

    The first node is MASTER_ADDR, or the first in Slurm's node list. Raises `WrongUsage` if neither is set.
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
    """The first host of a Slurm node list: gpu[03-05,9],login gives gpu03."""
    match = re.match(r"([^,\[]+)(?:\[([^\]]*)\])?([^,\[]*)", nodes)
    if match is None:
        return nodes
    numbers = re.split(r"[-,]", match[2])[0] if match[2] else ""
    return f"{match[1]}{numbers}{match[3]}"


def torchrun_command(nproc: int, words: Sequence[str], nodes: Nodes | None = None) -> list[str]:
    """The torchrun command that starts `words` as `nproc` ranks on this machine, one of `nodes` if given."""
    command = [*OWN_PYTHON, "-m", "torch.distributed.run"]
    if nodes is None:
        command += ["--standalone"]
    else:
        command += ["--nnodes", str(nodes.count), "--node-rank", str(nodes.number)]
        command += ["--master-addr", nodes.address, "--master-port", nodes.port]
    return [*command, "--nproc-per-node", str(nproc), "--no-python", *words]


def runnable(program: Sequence[str]) -> tuple[str, ...]:
    """An executable command for torchrun: this Python is prepended to a script or to `-m MODULE`."""
    if program and (program[0] == "-m" or program[0].endswith(".py")):
        return (sys.executable, *program)
    return tuple(program)


def regex_without_collectives(kernel: str | None = None) -> str:
    """A regex for ncu's --kernel-name that excludes kernels of collectives and keeps only those matching `kernel`.

    NVIDIA documents `regex:^(?!foo):` as "all kernels except"; ncu 2022.3 behaves the same.
    """
    wanted = f"(?=.*(?:{kernel}))" if kernel else ""
    return f"^(?!.*(?:{COLLECTIVE_KERNELS})){wanted}"


def rank_folder(folder: Path, rank: int | str) -> Path:
    """The run folder of a rank, inside the run folder of the whole run."""
    return folder / RANKS / str(rank)


def node_folder(folder: Path, number: int) -> Path:
    """The run folder of a node, inside the run folder of the whole run."""
    return folder / NODES / str(number)
