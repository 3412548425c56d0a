"""Machine files are valid, have sources, and agree with the studies' figures and the arithmetic of their chips."""

from __future__ import annotations

import json

import pytest
from ncu_launch.errors import WrongUsage

from ncu_tools.ceilings.machine_files import (
    Machine,
    find_machine,
    machine_files,
    machine_of_device,
    machines,
    parse_machine,
    problems,
    which_board,
)
from ncu_tools.roofline.roofline import of_machine
from tests.support.ran import ran

WANTED = [
    "v100-sxm2-16gb",
    "v100-pcie-32gb",
    "t4",
    "rtx-2080-ti",
    "a100-pcie-40gb",
    "a100-sxm4-40gb",
    "a100-pcie-80gb",
    "a100-sxm4-80gb",
    "a10g",
    "a40",
    "l4",
    "l40s",
    "rtx-3090",
    "rtx-4090",
    "h100-pcie",
    "h100-sxm",
    "h200",
    "gh200",
    "b200",
    "b300",
    "gb200",
    "gb300",
    "gb10",
    "rtx-5090",
    "rtx-pro-6000-blackwell",
    "apple-m1",
    "xeon-gold-6448y-amx-2-cores",
    "wormhole-n300s",
    "gaudi-3",
    "colab-cpu",
]

SAID_BY_DRIVERS: dict[str, str | None] = {
    "Tesla V100-SXM2-16GB": "v100-sxm2-16gb", "Tesla V100S-PCIE-32GB": "v100s-pcie-32gb",
    "Tesla P100-PCIE-16GB": "p100-pcie-16gb", "Tesla P100-SXM2-16GB": "p100-sxm2-16gb",
    "NVIDIA A30": "a30", "NVIDIA A10": "a10", "NVIDIA A10G": "a10g", "NVIDIA A800-SXM4-80GB": "a800-sxm4-80gb",
    "NVIDIA RTX A6000": "rtx-a6000", "NVIDIA RTX A5000": "rtx-a5000", "NVIDIA RTX A4000": "rtx-a4000",
    "NVIDIA RTX 6000 Ada Generation": "rtx-6000-ada", "NVIDIA L40": "l40", "NVIDIA L40S": "l40s",
    "NVIDIA H100 NVL": "h100-nvl", "NVIDIA H200 NVL": "h200-nvl",
    "NVIDIA H800": "h800-sxm", "NVIDIA GH200 480GB": "gh200", "NVIDIA GH200 144G HBM3e": "gh200-144gb",
    "NVIDIA GeForce RTX 3060": "rtx-3060", "NVIDIA GeForce RTX 3080 Ti": "rtx-3080-ti",
    "NVIDIA GeForce RTX 4070 Ti SUPER": "rtx-4070-ti-super", "NVIDIA GeForce RTX 5070": "rtx-5070",
    "NVIDIA GeForce RTX 5080": "rtx-5080", "NVIDIA TITAN RTX": "titan-rtx", "TITAN RTX": "titan-rtx",
    "Quadro RTX 6000": "quadro-rtx-6000", "Quadro RTX 8000": "quadro-rtx-8000",
    "NVIDIA B300 SXM6 AC": "b300", "NVIDIA GB200": "gb200", "NVIDIA GB300": "gb300", "NVIDIA GB10": "gb10",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "rtx-pro-6000-blackwell",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "rtx-pro-6000-blackwell-server",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": None,
}  # fmt: skip

UNLISTED = [
    None, "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA A10-24Q", "Orin",
    "NVIDIA GeForce RTX 3060 Laptop GPU", "NVIDIA GeForce RTX 3080 Laptop GPU", "NVIDIA GeForce RTX 4060 Laptop GPU",
    "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 5070 Ti Laptop GPU", "NVIDIA GeForce RTX 3070 with Max-Q Design",
    "NVIDIA RTX A5000 Laptop GPU", "Quadro RTX 6000 with Max-Q Design", "NVIDIA RTX 5000 Ada Generation Laptop GPU",
]  # fmt: skip
"""Devices with another clock, or a share of a board, than a machine file whose name is alike."""


def test_every_machine_file_is_valid_and_each_rate_has_a_source() -> None:
    found = {machine_id: problems(text) for machine_id, text in machine_files()}
    assert {machine_id: wrong for machine_id, wrong in found.items() if wrong} == {}
    rates = [(one, rate) for one, text in machine_files() for rate in parse_machine(one, text).rates.values()]
    assert [(machine_id, rate.unit) for machine_id, rate in rates if not rate.source] == []


def test_machines_that_users_look_for_exist() -> None:
    assert [one for one in WANTED if one not in machines() or not machines()[one].bandwidths] == []


@pytest.mark.parametrize(
    ("machine_id", "missing"),
    [("b300", "clock"), ("gb10", "clock"), ("rtx-pro-6000-blackwell", None), ("apple-m1", None)],
)
def test_the_command_says_what_of_a_chip_has_no_source(machine_id: str, missing: str | None) -> None:
    told = ran("machines", machine_id).stderr
    assert ("not known, for want of a source" in told) == (missing is not None)
    assert missing is None or f"for want of a source: {missing}\n" in told


@pytest.mark.parametrize("machine_id", ["b300", "gb200", "gb300", "gb10", "rtx-pro-6000-blackwell"])
def test_every_rate_that_the_command_shows_has_a_source(machine_id: str) -> None:
    rows = json.loads(ran("machines", machine_id, "--format", "json").stdout)["rows"]
    assert len(rows) > 2
    assert all(row["source"] for row in rows)


def test_no_two_machines_share_a_device_name() -> None:
    names = [name.casefold() for machine in machines().values() for name in machine.device_names]
    assert len(names) == len(set(names))


FIGURES = {
    ("a100-sxm4-40gb", "fp32"): 19.5e12,
    ("a100-sxm4-40gb", "tensor_fp16"): 312e12,
    ("a100-sxm4-40gb", "dram"): 1555e9,
    ("t4", "fp32"): 8.1e12,
    ("t4", "tensor_fp16"): 65e12,
    ("l4", "fp32"): 30.3e12,
    ("l4", "tensor_fp16"): 121e12,  # dense; 242 is the sparse figure
    ("b300", "tensor_bf16"): 2.25e15,  # dense; the data sheet prints the sparse 4.5e15
    ("b300", "tensor_fp4"): 14e15,
    ("gb200", "tensor_fp8"): 5e15,  # a superchip of two GPUs has 20e15 sparse
    ("gb300", "dram"): 8e12,
    ("gb10", "tensor_fp4"): 500e12,
    ("rtx-pro-6000-blackwell", "tensor_bf16"): 503.8e12,
    ("apple-m1", "fp32"): 2.61e12,
    ("apple-m1", "dram"): 67e9,
    ("xeon-gold-6448y-amx-2-cores", "tensor_int8"): 33.58e12,
    ("wormhole-n300s", "tensor_fp8"): 466e12,
    ("wormhole-n300s", "dram"): 576e9,
    ("gaudi-3", "tensor_bf16"): 1835e12,
    ("gaudi-3", "dram"): 3.7e12,
    ("colab-cpu", "fp32"): 70.4e9,
}
"""Figures of studies and data sheets: machine and unit -> FLOP/s, OP/s or B/s."""


def test_figures_of_studies_and_data_sheets_are_in_the_files() -> None:
    found = {(machine_id, unit): machines()[machine_id].rates[unit].value for machine_id, unit in FIGURES}
    assert found == pytest.approx(FIGURES, rel=5e-3)


NEW_BLACKWELLS = ["b300", "gb200", "gb300", "gb10", "rtx-pro-6000-blackwell"]


def test_every_tensor_rate_of_a_blackwell_but_fp64_says_its_sparse_rate() -> None:
    rates = [(one, rate) for one in NEW_BLACKWELLS for rate in machines()[one].rates.values()]
    for machine_id, rate in rates:
        if rate.unit.startswith("tensor_") and rate.unit != "tensor_fp64":
            assert rate.sparse == 2 * rate.value or "sparse" in rate.note, (machine_id, rate.unit)


def test_sparse_rates_are_separate_from_dense_ones() -> None:
    h100 = machines()["h100-sxm"].rates["tensor_fp8"]
    assert (h100.value, h100.sparse) == (pytest.approx(1979e12, rel=1e-3), pytest.approx(3958e12, rel=1e-3))


def test_the_ridge_point_of_an_a100_on_its_tensor_cores_is_200_6() -> None:
    ridge = next(ridge for ridge in of_machine(machines()["a100-sxm4-40gb"]).ridges if ridge.unit == "tensor_fp16")
    assert ridge.intensity == pytest.approx(200.6, abs=0.05)


@pytest.mark.parametrize(
    "name",
    ["a100-sxm4-40gb", "A100 SXM4 40GB".replace("A100", "NVIDIA A100"), "nvidia_a100-sxm4-40gb", "A100-SXM4-40GB"],
)
def test_a_machine_is_found_by_id_name_or_device_name(name: str) -> None:
    assert find_machine(name).id == "a100-sxm4-40gb"


def test_an_unknown_machine_suggests_similar_ones() -> None:
    with pytest.raises(WrongUsage, match="h100-sxm"):
        find_machine("h100-sxm6")


@pytest.mark.parametrize(
    ("name", "board"),
    [("a100", "a100-sxm4-80gb"), ("A100 40GB", "a100-sxm4-40gb"), ("h100", "h100-sxm"), ("V100", "v100-sxm2-16gb")],
)
def test_the_name_of_a_family_is_its_usual_board_and_a_note_names_the_others(name: str, board: str) -> None:
    found = find_machine(name)
    (note,) = which_board(name, found)
    family = name.lower().partition(" ")[0] + "-"
    others = [one for one in machines() if one.startswith(family) and one != board]
    assert found.id == board
    assert others
    assert note == f"{name} is taken as {board} ({found.name}); others are {', '.join(others)}"
    assert which_board(board, found) == []


@pytest.mark.parametrize(
    ("name", "board"), [("rtx4090", "rtx-4090"), ("RTX5070Ti", "rtx-5070-ti"), ("h100sxm", "h100-sxm")]
)
def test_a_machine_is_found_without_the_dashes_of_its_id(name: str, board: str) -> None:
    assert find_machine(name).id == board


def test_ids_of_machines_without_dashes_are_distinct() -> None:
    assert len({name.replace("-", "") for name in machines()}) == len(machines())


def test_a_short_name_is_of_one_board_and_of_no_other_machine() -> None:
    short = [name for machine in machines().values() for name in machine.short_names]
    own = {name for one in machines().values() for name in (one.id, *map(str.lower, (one.name, *one.device_names)))}
    assert len(short) == len(set(short))
    assert not own & set(short)


def board_of(device: str | None) -> str | None:
    found = machine_of_device(device)
    return found.id if found else None


def test_a_board_is_found_by_the_name_its_driver_gives_it() -> None:
    assert {device: board_of(device) for device in SAID_BY_DRIVERS} == SAID_BY_DRIVERS


def test_an_unlisted_device_is_not_matched_to_another() -> None:
    assert {device: board_of(device) for device in UNLISTED} == dict.fromkeys(UNLISTED)


def test_the_command_tells_of_another_board_of_the_same_name() -> None:
    assert "a 12 GB board of this name has 70 SMs and 912 GB/s" in ran("machines", "rtx-3080").stderr


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name = ", "not TOML"),
        ("", "name is missing"),
        ('schema = 1\nname="x"\nkind="gpu"\nvendor="x"\nsource="x"\ncolour="red"', "colour is not a key"),
        ('[[peak]]\nunit="fp31"\nvalue=1e12', "fp31 is no unit"),
        ('[[peak]]\nunit="fp32"\nvalue=19.5', "not a plausible rate"),
        ('[[peak]]\nunit="fp32"\nvalue=1e12\nsparse=3e12', "not about twice"),
        ('[[peak]]\nunit="fp32"\nvalue=1e12\nmma_sync=1e12', "not between half and all"),
        ('[[peak]]\nunit="fp32"\nvalue=1e12\nsustained=2e12', "not below the dense one"),
        ('[[peak]]\nunit="fp32"\nvalue=1e12\n[[peak]]\nunit="fp32"\nvalue=1e12', "stands twice"),
        ('kind="toaster"', "kind is none of"),
    ],
)
def test_an_invalid_machine_file_is_refused_with_the_problem(text: str, problem: str) -> None:
    assert any(problem in found for found in problems(text))


@pytest.mark.parametrize("machine", machines().values(), ids=lambda machine: machine.id)
def test_a_machine_is_found_by_the_words_of_its_file(machine: Machine) -> None:
    for words in (*machine.device_names, machine.compute_capability):
        assert words is None or machine in machines().with_words(words.upper().replace(" ", "_"))
