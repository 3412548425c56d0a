"""The memory chart of a kernel as in ncu-ui: traffic between SM, L1 and shared memory, L2, DRAM and system memory.

The layout is the SVG file beside this one. Its texts name facts of `ncu-bench kernel`, so that the HTML page and
`--chart` draw the same: `data-fact` is replaced by the value of a fact, `data-share` by a bar as long as its share.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

from ncu_tools.kernels.names.distinct_names import fitted_names
from ncu_tools.kernels.names.readable_names import readable_name
from ncu_tools.kernels.view.kernel_view import KernelView
from ncu_tools.kernels.view.part_rows import written
from ncu_tools.report.plot.theme import LIGHT, Theme
from ncu_tools.report.table import printable

SVG = "http://www.w3.org/2000/svg"
UNKNOWN = "not collected"
LONGEST_TITLE = 110
CHARTED = ("limits", "memory")
"""The parts of a view whose facts a chart shows."""
WIDTH, HEIGHT, HEADING = 1000, 300, 30


@cache
def layout() -> str:
    """The chart without values, as SVG."""
    return (Path(__file__).parent / "memory_chart.svg").read_text("utf-8")


def has_chart(view: KernelView) -> bool:
    """True if any traffic of the kernel is known."""
    return any(one.part == "memory" for one in view.facts)


def memory_chart(view: KernelView, theme: Theme = LIGHT) -> str:
    """The chart of a kernel as a standalone SVG file; unknown values are marked as such."""
    facts = {one.title: one for one in view.facts if one.part in CHARTED}
    texts = {title: written(one.kind, one.value) for title, one in facts.items()}
    shares = {title: one.share for title, one in facts.items() if one.share is not None}
    of_device = f", {view.device}" if view.device else ""
    return drawn(texts, shares, f"Memory chart of {readable_name(view.kernel_name)}{of_device}", theme)


def drawn(texts: Mapping[str, str], shares: Mapping[str, float], title: str, theme: Theme = LIGHT) -> str:
    """Fill the layout with `texts` and `shares` of facts, by their titles."""
    ElementTree.register_namespace("", SVG)
    root = ElementTree.fromstring(layout())  # noqa: S314 - our own file
    for node in root.iter():
        fact, share = node.attrib.pop("data-fact", None), node.attrib.pop("data-share", None)
        before, after = node.attrib.pop("data-before", ""), node.attrib.pop("data-after", "")
        if fact is not None:
            node.text = f"{before}{texts[fact]}{after}" if fact in texts else UNKNOWN
            node.set("class", node.get("class", "") + ("" if fact in texts else " chart-unknown"))
        if share is not None:
            node.set("width", f"{float(node.get('width', 0)) * min(max(shares.get(share, 0.0), 0.0), 1.0):.4g}")
    root.set("width", str(WIDTH))
    root.set("height", str(HEIGHT + HEADING))
    root.set("viewBox", f"0 {-HEADING} {WIDTH} {HEIGHT + HEADING}")
    root.set("aria-label", printable(title))
    head = ElementTree.Element(f"{{{SVG}}}title")
    head.text = printable(title)
    style = ElementTree.Element(f"{{{SVG}}}style")
    style.text = _looks(theme)
    whole = {"y": str(-HEADING), "width": "100%", "height": "100%", "fill": theme.paper}
    paper = ElementTree.Element(f"{{{SVG}}}rect", whole)
    heading = ElementTree.Element(f"{{{SVG}}}text", {"class": "chart-title", "x": "8", "y": "-8"})
    heading.text = fitted_names([printable(title)], LONGEST_TITLE)[printable(title)]
    root[:0] = [head, style, paper, heading]
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _looks(theme: Theme) -> str:
    blue = theme.of_series(0)
    return (
        f"text{{font:12px 'DejaVu Sans',Arial,sans-serif;fill:{theme.ink}}}"
        ".chart-title{font-weight:600;font-size:13px}"
        f".chart-box{{fill:none;stroke:{theme.quiet}}}"
        f".chart-track{{fill:{theme.grid}}}.chart-busy{{fill:{blue}}}"
        f".chart-link{{stroke:{theme.quiet};stroke-width:1.6}}.chart-head{{fill:{theme.quiet}}}"
        f".chart-flow{{font-weight:600}}.chart-unit,.chart-unknown{{fill:{theme.quiet};font-weight:400}}"
    )
