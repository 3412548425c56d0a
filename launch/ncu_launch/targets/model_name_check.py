"""Detect misspelt model names without importing a library or starting a process, which would take seconds."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from ncu_launch.errors import WrongUsage
from ncu_launch.targets.models import HF_CONFIGURATIONS, no_hf_model, no_torchvision_model
from ncu_launch.targets.reference_kernels import own_dtype

_REGISTERED = re.compile(r"^@register_model\(\)\n(?:(?!def ).*\n)*?def (\w+)\(", re.MULTILINE)


def misspelt(target: str) -> WrongUsage | None:
    """The error, with similar names, if no model is called `target`; None if one is, or only its library can tell."""
    try:
        if own_dtype(target) is not None:
            return None
    except WrongUsage as error:
        return error
    family, colon, name = target.partition(":")
    if family == "hf" and colon:
        return no_hf_model(name) if name not in HF_CONFIGURATIONS else None
    if colon:
        return None
    known = torchvision_names_unloaded()
    return no_torchvision_model(target, known) if known and target not in known else None


def torchvision_names_unloaded() -> list[str]:
    """Model names registered in the source of the installed torchvision; [] if there is none or it is unreadable."""
    spec = find_spec("torchvision")
    folders = spec.submodule_search_locations if spec is not None else None
    try:
        sources = sorted(file for folder in folders or () for file in Path(folder, "models").rglob("*.py"))
        return [name for file in sources for name in _REGISTERED.findall(file.read_text("utf-8"))]
    except (OSError, UnicodeDecodeError):
        return []
