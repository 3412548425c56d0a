"""A model on several ranks: each trains its own copy on its own batch, and gradients are averaged over the ranks.

This is PyTorch's DistributedDataParallel, over NCCL on GPUs and gloo on CPUs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.profilers.rank_environment import place_here
from ncu_launch.workload_spec import Workload

RENDEZVOUS = "rendezvous"
LONGEST_WAIT = timedelta(hours=1)
"""Under ncu a rank may lag behind another for long; a lost rank ends the others by other means."""


@contextmanager
def joined_ranks(workload: Workload, device: str, shared: Path) -> Iterator[None]:
    """Within the block, this process is a rank of a data-parallel workload; other workloads are unaffected.

    The ranks meet at the launcher's address (MASTER_ADDR), or at a file in the folder `shared`. Raises `WrongUsage` for
    modes that cannot be replicated, `NcuBenchError` without a launcher.
    """
    if not workload.data_parallel:
        yield
        return
    import torch
    from torch import distributed

    if workload.mode in ("jit", "cudagraph"):
        raise WrongUsage(f"A model in --mode {workload.mode} cannot be replicated.", advice="Use --mode eager.")
    place = place_here(os.environ, at_least=1)
    if place is None:
        raise NcuBenchError("No launcher says which rank this is.", advice="Start it with --nproc, srun or mpirun.")
    if device == "cuda":
        torch.cuda.set_device(place.local_rank % torch.cuda.device_count())
    meeting = "env://" if "MASTER_ADDR" in os.environ else (shared / RENDEZVOUS).resolve().as_uri()
    distributed.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        init_method=meeting, rank=place.rank, world_size=place.world_size, timeout=LONGEST_WAIT,
    )  # fmt: skip
    yield
    distributed.barrier()
    distributed.destroy_process_group()


def meet(workload: Workload) -> None:
    """Wait until every rank is here, so that the first collective does not include earlier delays."""
    if workload.data_parallel:
        from torch import distributed

        distributed.barrier()


def replicated(workload: Workload, model: Any) -> Any:
    """The model with its gradients averaged over the ranks; unchanged if no training runs on several."""
    if not (workload.data_parallel and workload.wants_backward):
        return model
    from torch.nn.parallel import DistributedDataParallel

    # Many models have outputs that do not enter the loss; DDP would wait for the parameters behind them.
    return DistributedDataParallel(model, find_unused_parameters=True)
