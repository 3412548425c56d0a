"""Values of `--vary`, such as `n=64..4096*2` or `m,n=1024x1024,2048x512`, as the points of a sweep.

A name of `SETTINGS` sets how the target runs, like the option of that name; any other name is an argument of the user's
function.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from itertools import product
from typing import Any

from ncu_launch.errors import WrongUsage
from ncu_launch.workload_spec import DTYPES, MODES, Workload

Variant = tuple[tuple[str, str], ...]
"""Names and values of one point, as text."""

SETTINGS = {
    "batch_size": "batch_size", "batch": "batch_size", "input_size": "input_size", "image_size": "input_size",
    "seq_len": "sequence_length", "sequence_length": "sequence_length", "dtype": "dtype", "mode": "mode",
}  # fmt: skip
"""Names that set how a target runs -> the field of its workload."""
CHOICES = {"dtype": DTYPES, "mode": MODES}
MOST_VALUES = 1000
"""Most values of one range; a longer range is refused as probably mistyped."""

_RANGE = re.compile(r"(?P<first>[^.*+]+(?:\.\d+)?)\.\.(?P<last>[^*+]+?)(?P<how>[*+])(?P<step>.+)")
_BEGINS_AS_NUMBER = re.compile(r"[-+]?\.?\d|nan|inf", re.IGNORECASE)
_EXAMPLES = "Write --vary n=64,128,256, --vary n=64..4096*2 or n=64..512+64, or for pairs --vary m,n=8x8,16x4."


def variants_of(texts: Sequence[str]) -> tuple[Variant, ...]:
    """Every combination of the values of several `--vary`, the last varying fastest; `((),)` without any.

    Raises `WrongUsage` for a malformed text, and for a name that is varied twice.
    """
    axes = [_axis(text) for text in texts]
    names = [SETTINGS.get(name, name) for axis in axes for name, _ in axis[0]]
    for name in names:
        if names.count(name) > 1:
            raise WrongUsage(f"{name} is varied twice.", advice="Put all its values after one --vary.")
    found = (tuple(pair for point in points for pair in point) for points in product(*axes))
    return tuple(dict.fromkeys(found))


def _axis(text: str) -> list[Variant]:
    """The points of one `--vary`: a name and a value each, or several of both if they vary together."""
    left, sign, right = text.partition("=")
    names = [name.strip() for name in left.split(",")]
    values = [value.strip() for value in right.split(",")]
    if not sign or not all(name.isidentifier() for name in names) or not all(values):
        raise WrongUsage(f"--vary {text} does not name what varies and its values.", advice=_EXAMPLES)
    if len(names) == 1:
        return [((names[0], one),) for value in values for one in _ranged(text, value)]
    found = []
    for value in values:
        parts = [part.strip() for part in value.split("x")]
        if len(parts) != len(names) or not all(parts):
            raise WrongUsage(
                f"--vary {text} names {len(names)} arguments, and {value} has {len(parts)} values.",
                "Values that belong together are joined by an x.",
                _EXAMPLES,
            )
        found.append(tuple(zip(names, parts, strict=True)))
    return found


def _ranged(text: str, value: str) -> list[str]:
    """The values of a range, its end included if a step reaches it; any other text, such as ../data, is one value."""
    if ".." not in value or not _BEGINS_AS_NUMBER.match(value):
        return [value]
    match = _RANGE.fullmatch(value)
    if match is None:
        raise WrongUsage(f"--vary {text}: {value} is no range.", advice=_EXAMPLES)
    try:
        first, last, step = (Decimal(match[name].strip()) for name in ("first", "last", "step"))
    except InvalidOperation:
        raise WrongUsage(f"--vary {text}: {value} is no range of numbers.", advice=_EXAMPLES) from None
    grows = match["how"] == "*"
    if not all(one.is_finite() for one in (first, last, step)) or first > last or step <= (1 if grows else 0):
        raise WrongUsage(
            f"--vary {text}: the step never reaches {last:f}.",
            f"Use a {'factor above 1' if grows else 'step above 0'}, and a last value that is not below the first.",
            _EXAMPLES,
        )
    if grows and first <= 0:
        raise WrongUsage(f"--vary {text}: {value} multiplies, and does not begin above 0.", advice=_EXAMPLES)
    found = []
    while first <= last:
        found.append(f"{first:f}")
        first = first * step if grows else first + step
        if len(found) > MOST_VALUES:
            raise WrongUsage(f"--vary {text}: {value} has more than {MOST_VALUES} values.", advice=_EXAMPLES)
    return found


def settings_in(variants: Iterable[Variant]) -> frozenset[str]:
    """The fields of a workload that any of the variants sets."""
    return frozenset(SETTINGS[name] for variant in variants for name, _ in variant if name in SETTINGS)


def varied(workload: Workload, variant: Variant, *, takes_arguments: bool) -> Workload:
    """The workload with the values of one point: settings set, and all others added to its arguments.

    Raises `WrongUsage` for a value that a setting does not accept, for an argument that already has a value, and for
    any argument of a target that is not a function.
    """
    settings: dict[str, Any] = {}
    arguments = dict(workload.arguments)
    for name, value in variant:
        if name in SETTINGS:
            settings[SETTINGS[name]] = _setting(name, value)
            continue
        if not takes_arguments:
            raise WrongUsage(
                f"{workload.target} has no argument {name} that --vary could set.",
                "Only a function, written as FILE.py:FUNCTION, has arguments.",
                "Of any target these can be varied: batch_size, input_size, seq_len, dtype, mode.",
            )
        if name in arguments:
            raise WrongUsage(f"{name} is varied, and --arg gives it a value.", advice="Leave one of them out.")
        arguments[name] = value
    return replace(workload, **settings, arguments=tuple(arguments.items()))


def _setting(name: str, value: str) -> Any:
    choices = CHOICES.get(SETTINGS[name])
    if choices is not None:
        if value not in choices:
            raise WrongUsage(f"--vary {name}: {value} is none of {', '.join(choices)}.", advice="Name one of them.")
        return value
    if not value.isdecimal() or int(value) < 1:
        raise WrongUsage(f"--vary {name}: {value} is no size.", advice="Sizes are whole numbers from 1 on.")
    return int(value)
