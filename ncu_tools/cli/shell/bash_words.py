"""Completion in bash, which splits words at `:` and `=`, so that `hf:be` arrives as three words."""

from __future__ import annotations

from typing import Any

from click.shell_completion import BashComplete, CompletionItem, add_completion_class

SPLIT_AT = (":", "=")


class BashWords(BashComplete):
    """As click's, with the words as they were typed: `hf:be` and `--machine=h1` are completed too."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The whole words before the one to complete, and its beginning."""
        words, begun = super().get_completion_args()
        joined = rejoined([*words, begun])
        return joined[:-1], joined[-1]

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[Any]]:
        """The completions without any part up to a `:`, which bash keeps."""
        items = super().get_completions(args, incomplete)
        kept = incomplete.rpartition("=")[2].rpartition(":")
        before = kept[0] + kept[1]
        return [CompletionItem(item.value.removeprefix(before), item.type, item.help) for item in items]


def rejoined(words: list[str]) -> list[str]:
    """The typed words, rejoined from bash's pieces split at `SPLIT_AT`."""
    found: list[str] = []
    open_end = False
    for word in words:
        is_split = word in SPLIT_AT and bool(found)
        if is_split or open_end:
            found[-1] += word
        else:
            found.append(word)
        open_end = is_split
    return found


def use_bash_words() -> None:
    """Make click use this class for bash."""
    add_completion_class(BashWords)
