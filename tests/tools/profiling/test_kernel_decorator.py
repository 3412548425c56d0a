"""`ncu_tools.kernel`: the example of docs/python.md run as a program, in a process of its own at night, and what is refused."""

from __future__ import annotations

import io
import re
import runpy
import subprocess
import sys
import textwrap
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from ncu_launch.errors import WrongUsage

import ncu_tools
from ncu_tools.profiling.kernel_decorator import ProfiledKernel
from tests.conftest import ROOT
from tests.support.installed import needs_torch
from tests.support.models.models_here import models_run_here

pytestmark = [pytest.mark.slow, needs_torch]


def example() -> str:
    manual = (ROOT / "docs" / "python.md").read_text("utf-8")
    (found,) = re.findall(r"<!-- file: product.py -->\n((?:    .*\n|\n)+)", manual)
    return textwrap.dedent(found)


def ran(folder: Path, source: str) -> subprocess.CompletedProcess[str]:
    (folder / "product.py").write_text(source, encoding="utf-8")
    return subprocess.run([sys.executable, "product.py"], cwd=folder, capture_output=True, text=True, check=False)


def ran_here(folder: Path, source: str) -> str:
    """What the program prints, run as `python product.py` in this process, and its points too."""
    (folder / "product.py").write_text(source, encoding="utf-8")
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        models_run_here(patch)
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["product.py"])
        runpy.run_path("product.py", run_name="__main__")
    return printed.getvalue()


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("example")
    return folder, ran_here(folder, example().replace("[64, 128, 256]", "[64, 256]"))


def test_the_example_prints_a_row_per_point_with_its_counted_flops(profiled: tuple[Path, str]) -> None:
    points = profiled[1].partition("kernel")[0].splitlines()[1:]
    flops = {int(row.split()[1]): float(row.split()[3]) for row in points if row.strip()}
    assert flops == {n: 2 * n**3 for n in (64, 256)}


def test_one_point_has_tables_and_views_and_an_unclear_one_is_refused(profiled: tuple[Path, str]) -> None:
    points = ProfiledKernel(profiled[0] / "points")
    assert points.table["n"].tolist() == [64, 256]
    kernels = points.point(n=256).kernels
    assert kernels.loc[kernels["kernel"] == "aten::mm", "flops"].tolist() == [2 * 256**3]
    with pytest.raises(WrongUsage, match=r"0 points have \{'n': 7\}\. Points are: n=64, n=256\."):
        points.point(n=7)
    with pytest.raises(WrongUsage, match="2 points have"):
        points.point()


@pytest.mark.nightly
def test_a_file_that_profiles_whenever_it_is_imported_is_refused_in_its_points(tmp_path: Path) -> None:
    told = ran(tmp_path, example().replace('if __name__ == "__main__":', "if True:").replace("[64, 128, 256]", "[64]"))
    assert "profiles product whenever it is imported" in told.stdout + told.stderr + str(reasons(tmp_path))


def reasons(folder: Path) -> list[str]:
    return list(ProfiledKernel(folder / "points").table["reason"])


def test_the_function_is_called_as_ever_and_what_cannot_be_profiled_is_refused() -> None:
    @ncu_tools.kernel(vary={"n": [1, 2]})
    def double(n: int = 1) -> int:
        """Twice n."""
        return 2 * n

    assert (double(3), double.__doc__) == (6, "Twice n.")
    with pytest.raises(WrongUsage, match="double is not at the top level of a file"):
        double.profile()
    with pytest.raises(WrongUsage, match=r"no argument called m\. Its arguments are: n: int = 1"):
        ncu_tools.kernel(vary={"m": [1]})(double)
