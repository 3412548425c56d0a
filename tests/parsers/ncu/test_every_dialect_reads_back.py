"""Any table of launches, in any dialect, locale and scale, with any noise between its rows, reads back equal."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.detect.text_reader import read_report
from ncu_parsers.report_data.cell_text import unit
from ncu_parsers.report_data.report import Launch, Report
from ncu_parsers.sources.sources import Source

from sample_reports import dialects
from sample_reports.dialects import Cell, Printed, Style

LOCALES = ((".", ","), (".", ""), (",", "."), (",", ""), (",", "\u202f"), (".", "'"))
NOISE = (
    "step 10, loss = 2.3456, lr 0.001",
    '[rank0]: "hello, world" a=1,b=2',
    '"unterminated quote from the program, x',
    "Epoch 3/10: 100%|####| 10/10",
    "==WARNING== Profiling overhead is high",
    '==PROF== Profiling "k001": 0%....50%....100% - 21 passes',
    'nan,inf,"",,,',
    '"0","1"',
    "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16",
    "",
    "   ",
    "  indented, Context of the program",
    '"ID","name"',
    "ä ö ü \u4f60 \U0001f600",
)

UNITS_OLD = (
    "nsecond",
    "usecond",
    "msecond",
    "byte",
    "Kbyte",
    "Gbyte",
    "Mbyte",
    "inst",
    "cycle",
    "%",
    "cycle/nsecond",
    "",
)
UNITS_NEW = ("ns", "us", "ms", "byte", "Kbyte", "Mbyte", "Gbyte", "inst", "cycle", "%", "Ghz", "byte/s", "")
COUNTED_UNITS = ("ns", "nsecond", "byte", "inst", "cycle", "")

kernel_names = st.one_of(
    st.sampled_from(
        [
            "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, std::array<char *, 3>>(int, T2, T3)",
            'operator"" _x(int)',
            "julia__5_6739(CuKernelContext, CuDeviceArray<Int4x8, (int)1, (int)1>, Int4x8)",
            "<unnamed>::kernel(const char *)",
            "sigma_gpp_gpu_29",
            "<script>alert(1)</script>",
            "=cmd|' /C calc'!A0",
        ]
    ),
    st.text(st.characters(blacklist_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=60).filter(
        lambda text: text == text.strip() and "\ufeff" not in text and "\ufffd" not in text
    ),
)
metric_names = st.lists(
    st.from_regex(r"[a-z]{2,5}__[a-z_]{3,20}\.(sum|avg|max)(\.per_second)?", fullmatch=True),
    min_size=1,
    max_size=6,
    unique=True,
)
dimensions = st.tuples(st.integers(1, 65535), st.integers(1, 99), st.integers(1, 9))


@st.composite
def cells(
    draw: st.DrawFn, names: list[str], units: tuple[str, ...], fixed_units: dict[str, str] | None = None
) -> list[Cell]:
    """Cells as printed by ncu: counts without or with two decimals, all others with two or six."""
    result = []
    for name in names:
        unit_text = fixed_units[name] if fixed_units else draw(st.sampled_from(units))
        decimals = draw(st.sampled_from([0, 2] if unit_text in COUNTED_UNITS else [2, 6]))
        result.append(Cell(name, draw(st.integers(0, 10**13)), unit_text, decimals))
    return result


@st.composite
def launches(draw: st.DrawFn, *, one_unit_per_metric: bool = False, old: bool = False) -> list[Printed]:
    """One to five launches with the same metrics; ids restart in the second process."""
    names = draw(metric_names)
    units = UNITS_OLD if old else UNITS_NEW
    fixed = {name: draw(st.sampled_from(units)) for name in names} if one_unit_per_metric else None
    count = draw(st.integers(1, 5))
    split = draw(st.integers(0, count))
    return [
        Printed(
            launch_id=number if number < split else number - split,
            kernel=draw(kernel_names),
            cells=draw(cells(names, units, fixed)),
            process_id=1 if number < split else 2,
            grid=draw(dimensions),
            block=draw(dimensions),
            stream=str(draw(st.integers(0, 99))),
        )
        for number in range(count)
    ]


@st.composite
def styles(draw: st.DrawFn, *, noise_between: bool = True) -> Style:
    """Any locale, either line end, and any noise above, below and between the rows."""
    decimal, thousands = draw(st.sampled_from(LOCALES))
    noise = st.lists(st.sampled_from(NOISE), max_size=4)
    return Style(
        decimal=decimal,
        thousands=thousands,
        line_end=draw(st.sampled_from(["\n", "\r\n"])),
        above=draw(noise),
        below=draw(noise),
        between=draw(noise) if noise_between else [],
    )


encodings = st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])


def read(text: str, encoding: str = "utf-8") -> Report:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.csv"
        path.write_bytes(text.encode(encoding))
        return read_report(Source(str(path)))


def is_ambiguous(printed: list[Printed], style: Style) -> bool:
    """True if every number of the table is ambiguous, so that its locale cannot be inferred."""
    texts = [style.number(cell) for launch in printed for cell in launch.cells]
    return style.decimal == "," and not any("," in text or text.count(".") > 1 for text in texts)


def assert_reads_back(printed: list[Printed], found: list[Launch], *, shapes: bool = True) -> None:
    assert [launch.kernel_name for launch in found] == [launch.kernel for launch in printed]
    for expected, launch in zip(printed, found, strict=True):
        assert (launch.launch_id, launch.process_id, launch.stream) == (
            expected.launch_id,
            expected.process_id,
            expected.stream,
        )
        if shapes:
            assert (launch.grid, launch.block) == (expected.grid, expected.block)
        assert launch.metrics.keys() == {cell.name for cell in expected.cells}
        for cell in expected.cells:
            assert isinstance(cell.digits, int)
            base, factor = unit(cell.unit)
            metric = launch.metrics[cell.name]
            assert metric.value == pytest.approx(cell.digits * 10.0**-cell.decimals * factor, rel=1e-12)
            assert metric.unit == base


@given(printed=launches(), style=styles(), encoding=encodings, delimiter=st.sampled_from([",", ";", "\t"]))
def test_long_pages_read_back(printed: list[Printed], style: Style, encoding: str, delimiter: str) -> None:
    if is_ambiguous(printed, style):
        style.decimal, style.thousands = ".", ","
    style.delimiter = delimiter
    report = read(dialects.long(printed, style), encoding)
    assert_reads_back(printed, report.launches)


@given(printed=launches(), style=styles(), body=st.booleans())
def test_long_pages_with_rules_and_body_labels_read_back(printed: list[Printed], style: Style, body: bool) -> None:
    if is_ambiguous(printed, style):
        style.decimal, style.thousands = ".", ","
    rules = [("SpeedOfLight", "SOLBottleneck", "OPT", 'a "quoted" text, with 1,024 bytes')]
    report = read(dialects.long(printed, style, rules=rules, body=body))
    assert_reads_back(printed, report.launches)
    assert all([rule.name for rule in launch.rules] == ["SOLBottleneck"] for launch in report.launches)


@given(printed=launches(old=True), style=styles())
def test_legacy_long_pages_read_back(printed: list[Printed], style: Style) -> None:
    if is_ambiguous(printed, style):
        style.decimal, style.thousands = ".", ","
    report = read(dialects.long(printed, style, legacy=True))
    assert_reads_back(printed, report.launches, shapes=False)
    assert report.era == "at most 2022.3"


@given(printed=launches(one_unit_per_metric=True), style=styles(), legacy=st.booleans())
def test_wide_pages_read_back(printed: list[Printed], style: Style, legacy: bool) -> None:
    if is_ambiguous(printed, style):
        style.decimal, style.thousands = ".", ","
    report = read(dialects.wide(printed, style, legacy=legacy))
    assert_reads_back(printed, report.launches, shapes=not legacy)


@given(printed=launches(), style=styles(noise_between=False), count=st.integers(2, 9))
def test_summaries_read_back(printed: list[Printed], style: Style, count: int) -> None:
    if is_ambiguous(printed, style):
        style.decimal, style.thousands = ".", ","
    groups = [
        (launch, count + number, [(cell, cell, cell) for cell in launch.cells]) for number, launch in enumerate(printed)
    ]
    report = read(dialects.summary(groups, style))
    assert [launch.invocations for launch in report.launches] == [group[1] for group in groups]
    for expected, launch in zip(printed, report.launches, strict=True):
        for cell in expected.cells:
            assert launch.metrics[cell.name] == launch.metrics[f"{cell.name} (minimum)"]


@given(first=launches(), second=launches(old=True), style=styles())
def test_two_runs_appended_to_one_file(first: list[Printed], second: list[Printed], style: Style) -> None:
    """A long page followed by a legacy page; different processes, so that nothing is joined."""
    if is_ambiguous(first, style) or is_ambiguous(second, style):
        style.decimal, style.thousands = ".", ","
    for launch in second:
        launch.process_id += 1000
    report = read(dialects.long(first, style) + dialects.long(second, style, legacy=True))
    assert_reads_back(first, report.launches[: len(first)])
    assert_reads_back(second, report.launches[len(first) :], shapes=False)


@given(printed=launches(), style=styles(), data=st.data())
def test_a_page_cut_in_the_middle_of_its_last_line_keeps_all_lines_before(
    printed: list[Printed], style: Style, data: st.DataObject
) -> None:
    if is_ambiguous(printed, style):
        style.decimal, style.thousands = ".", ","
    style.below = ()
    lines = dialects.long(printed, style)
    row = dialects.long([Printed(77, "cut", [Cell("a__b.sum", 1)])], Style()).splitlines()[1]
    cut = row[: data.draw(st.integers(3, row.index('"Command')))]
    report = read(lines + cut)
    assert_reads_back(printed, report.launches)


@given(printed=launches(), style=styles(noise_between=False))
def test_text_pages_read_back(printed: list[Printed], style: Style) -> None:
    if is_ambiguous(printed, style):
        style.decimal, style.thousands = ".", ","
    for launch in printed:
        launch.kernel, launch.process_id = f"kernel_{launch.launch_id}(int, float *)", 1
    style.above, style.below = [line for line in style.above if "Context" not in line], []
    report = read(dialects.text(printed, style))
    assert [found.launch_id for found in report.launches] == [None] * len(printed)  # text pages print no ids
    for found, launch in zip(report.launches, printed, strict=True):
        found.launch_id = launch.launch_id
    assert_reads_back(printed, report.launches)
