"""Of the files that nsys creates for one timeline, a folder gives the most detailed one."""

from __future__ import annotations

import pytest
from ncu_parsers.sources.nsys_siblings import drop_repeats


@pytest.mark.parametrize(
    ("paths", "kept"),
    [
        (["a.nsys-rep", "a.sqlite", "a_cuda_gpu_trace.csv"], ["a.sqlite"]),
        (["a.nsys-rep.gz", "a_cuda_gpu_kern_sum.csv"], ["a.nsys-rep.gz"]),
        (["a_gpukernsum.csv", "a_gputrace.txt"], ["a_gputrace.txt"]),
        (["a_cuda_gpu_kern_sum.csv", "a_cuda_gpu_kern_gb_sum.csv"], ["a_cuda_gpu_kern_gb_sum.csv"]),
        (["a_cuda_gpu_kern_sum.csv", "a_cuda_gpu_mem_time_sum.csv"],
         ["a_cuda_gpu_kern_sum.csv", "a_cuda_gpu_mem_time_sum.csv"]),
        (["a_cuda_gpu_kern_sum.csv", "a_nvtx_kern_sum.csv"], ["a_cuda_gpu_kern_sum.csv"]),
    ],
)  # fmt: skip
def test_the_most_detailed_form_is_kept(paths: list[str], kept: list[str]) -> None:
    assert drop_repeats(paths) == kept
    assert drop_repeats(paths[::-1]) == kept[::-1]


@pytest.mark.parametrize(
    "paths",
    [
        ["a.sqlite", "b.nsys-rep"],
        ["one/a.sqlite", "two/a.nsys-rep"],
        ["a.csv", "a.ncu-rep", "a.txt"],
        ["a_cuda_gpu_trace.csv"],
    ],
    ids=["another timeline", "another folder", "reports of ncu", "a single file"],
)
def test_files_that_may_be_of_another_timeline_are_kept(paths: list[str]) -> None:
    assert drop_repeats(paths) == paths
