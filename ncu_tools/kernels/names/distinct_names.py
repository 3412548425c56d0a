"""Unique short names of kernels, and names cut to a width that stay unique.

distinct_names([...forward<float, 6>..., ...forward<float, 7>...])  -> softmax_warp_forward fp32 (6), ... (7)
fitted_names(["gemm bf16 128x256x64 tn", "gemm bf16 256x128x64 tn"], 17)  -> gemm bf…256x64 tn, gemm bf…128x64 tn
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import count

from ncu_tools.kernels.names.kernel_ids import kernel_id
from ncu_tools.kernels.names.kernel_name_spelling import normalised_name
from ncu_tools.kernels.names.readable_names import readable_name, type_word
from ncu_tools.numbers.text_width import head_of, tail_of, text_width

_WORDS = re.compile(r"[A-Za-z0-9]+")
_NOISE = frozenset({"at", "native", "anonymous", "namespace", "unnamed", "c10", "std", "void", "const", "cuda"})
_MANGLED_LITERAL = re.compile(r"^L[a-z](?=\d)")
_SHAPE = re.compile(r" (?:\((?:\d+, \d+, \d+|\?)\) x \((?:\d+, \d+, \d+|\?)\)|#\d+)$")
_ADDED = re.compile(r" \([^()]*\)$")
LONGEST_DIFFERENCE = 32
"""The most letters added to make a name unique; beyond it, the kernel's key is added."""
MOST_ALIKE = 200
"""The most kernels of one readable name that are distinguished by words."""

ELLIPSIS = "…"


def distinct_names(fulls: Iterable[str]) -> dict[str, str]:
    """The readable name of each full name; equal ones get their difference appended in brackets.

    The shape or number of a launch after a full name, as `--by grid` adds it, is kept.
    """
    parts = {full: _without_shape(full) for full in dict.fromkeys(fulls)}
    named = _distinct({name for name, _ in parts.values()})
    return {full: named[name] + shape for full, (name, shape) in parts.items()}


def _without_shape(full: str) -> tuple[str, str]:
    found = _SHAPE.search(full)
    return (full, "") if found is None or not found.start() else (full[: found.start()], found[0])


def _distinct(fulls: Iterable[str]) -> dict[str, str]:
    alike: defaultdict[str, list[str]] = defaultdict(list)
    for full in sorted(fulls):
        alike[readable_name(full)].append(full)
    named: dict[str, str] = {}
    for name, group in alike.items():
        named |= _with_differences(name, group)
    return _injective(named)


def _with_differences(name: str, fulls: Sequence[str]) -> dict[str, str]:
    """Full names of one readable name, each with its difference appended."""
    if len(fulls) == 1:
        return {fulls[0]: name}
    for words_of in (_words, _smaller_words) if len(fulls) <= MOST_ALIKE else ():
        differences = _differences([words_of(full) for full in fulls])
        if len(set(differences)) == len(fulls) and max(map(len, differences)) <= LONGEST_DIFFERENCE:
            break
    else:
        differences = [kernel_id(full) for full in fulls]
    return {full: f"{name} ({added})" if added else name for full, added in zip(fulls, differences, strict=True)}


def _words(full: str) -> tuple[str, ...]:
    """The words of a full name in order, without words common to all names of a library."""
    if full.startswith("_Z"):
        return tuple(_MANGLED_LITERAL.sub("", word) for word in re.split(r"[E_]+|(?=L[a-z]\d)", full))
    return tuple(word for word in _WORDS.findall(normalised_name(full)) if word not in _NOISE)


def _smaller_words(full: str) -> tuple[str, ...]:
    """The words of a full name, split before capitals: PagedKvCausal is Paged, Kv and Causal."""
    return tuple(part for word in _words(full) for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", word))


def _differences(words: Sequence[tuple[str, ...]]) -> list[str]:
    """Distinguishing parts of word sequences: words at one place if they suffice, else those where they branch."""
    lengths = {len(one) for one in words}
    if len(lengths) == 1:
        columns = [column for column in zip(*words, strict=True) if len(set(column)) == len(words)]
        if columns:
            return _in_words(min(columns, key=lambda column: sum(map(len, column))))
    return [" ".join(branch) for branch in _branches(words)]


def _in_words(column: Sequence[str]) -> list[str]:
    """Words with engineers' names for types, if they still differ then."""
    typed = [type_word(word) for word in column]
    return typed if len(set(typed)) == len(column) else list(column)


def _branches(words: Sequence[tuple[str, ...]], place: int = 0) -> list[list[str]]:
    """For each sequence its words at the places where it leaves others with the same beginning."""
    while all(len(one) > place for one in words) and len({one[place] for one in words}) == 1:
        place += 1
    if len(words) == 1 or all(len(one) <= place for one in words):
        return [[] for _ in words]
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for number, one in enumerate(words):
        groups[one[place] if len(one) > place else ""].append(number)
    found: list[list[str]] = [[] for _ in words]
    shown = dict(zip(groups, _in_words(list(groups)), strict=True))
    for word in groups:
        if all(word in words[one][place + 1 :] for other in groups if other != word for one in groups[other]):
            shown[word] = ""  # the others have words before it
            break
    for word, members in groups.items():
        below = _branches([words[one] for one in members], place + 1) if word else [[] for _ in members]
        for member, more in zip(members, below, strict=True):
            found[member] = [shown[word], *more] if shown[word] else more
    return found


def _injective(named: dict[str, str]) -> dict[str, str]:
    """The names, with the kernel's key appended to names shared with another kernel."""
    taken: defaultdict[str, int] = defaultdict(int)
    for name in named.values():
        taken[name] += 1
    return {full: name if taken[name] == 1 else f"{name} ({kernel_id(full)})" for full, name in named.items()}


# --------------------------------------------------------------------------------------------------- to fit a width


def fitted_names(names: Iterable[str], width: int) -> dict[str, str]:
    """Texts at most `width` wide, cut in the middle at a place that keeps all of them distinct.

    If no place does, they are numbered.
    """
    texts = sorted(set(names))
    fitted = {text: _cut(text, width, _usual_place(text, width)) for text in texts}
    for group in _groups_shown_alike(fitted):
        fitted |= _cut_apart(group, width)
    for group in _groups_shown_alike(fitted):
        fitted |= _numbered(group, width, set(fitted.values()))
    return fitted


def _groups_shown_alike(fitted: dict[str, str]) -> list[list[str]]:
    """The groups of texts that look alike."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for text, shown in fitted.items():
        groups[shown].append(text)
    return [group for group in groups.values() if len(group) > 1]


def _usual_place(text: str, width: int) -> int:
    """Default cut position of a text: before its distinguishing end, else in the middle."""
    added = _ADDED.search(text)
    room = width - 1 - len(added[0]) if added else 0
    return room if room > width // 3 else width // 2


def _cut(text: str, width: int, before: int) -> str:
    """A text of at most `width`, with `before` columns of its start and as much of its end as fits."""
    if text_width(text) <= width:
        return text
    head = head_of(text, max(min(before, width - 1), 0))
    return head + ELLIPSIS + tail_of(text, width - 1 - text_width(head))


def _cut_apart(group: Sequence[str], width: int) -> dict[str, str]:
    """Texts that look alike when cut in the middle, cut elsewhere; {} if no place keeps them distinct.

    Best is a place in their common part, so that differing words stay whole.
    """
    for texts in (group, _without_common_start(group, width)):
        for before in _places(texts, width):
            shown = [_cut(text, width, before) for text in texts]
            if len(set(shown)) == len(shown):
                return dict(zip(group, shown, strict=True))
    return {}


def _places(texts: Sequence[str], width: int) -> list[int]:
    """Possible cut positions of texts, by how few differing words they cut, then by nearness to the middle."""
    start, end = len(_common_start(texts)), len(_common_start([text[::-1] for text in texts]))

    def cost(before: int) -> tuple[int, int]:
        lost = sum(before < len(text) - end and len(text) - (width - 1 - before) > start for text in texts)
        return lost, abs(before - width // 2)

    return sorted(range(width), key=cost)


def _common_start(texts: Sequence[str]) -> str:
    """The common start of texts, up to the word in which they differ."""
    start, last = min(texts), max(texts)
    while not last.startswith(start):
        start = start[:-1]
    return re.sub(r"[A-Za-z0-9]+$", "", start)


def cut_end(text: str, width: int) -> str:
    """A text of at most `width`, cut at its end."""
    return text if text_width(text) <= width else head_of(text, width - 1) + ELLIPSIS


def _without_common_start(group: Sequence[str], width: int) -> list[str]:
    """Texts with their common start cut to a few letters."""
    start = _common_start(group)
    kept = head_of(start, width // 4)
    return [f"{kept}{ELLIPSIS}{text[len(start) :]}" if len(start) > len(kept) else text for text in group]


def _numbered(group: Sequence[str], width: int, taken: set[str]) -> dict[str, str]:
    """Texts that no cut distinguishes, with numbers appended."""
    numbered: dict[str, str] = {}
    numbers = count(1)
    for text in group:
        while True:
            mark = f"#{next(numbers)}"
            shown = _cut(text, width - len(mark), width) + mark
            if shown not in taken:
                break
        taken.add(shown)
        numbered[text] = shown
    return numbered
