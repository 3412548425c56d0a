"""The width of texts in terminal columns, where a Chinese character takes two, and their starts and ends."""

from __future__ import annotations


def text_width(text: str) -> int:
    """The width of a text in columns of a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # slow to import, and most texts do not need it

    return cell_len(text)


def head_of(text: str, width: int) -> str:
    """The start of a text that fits `width` columns."""
    head = text[: max(width, 0)]
    while text_width(head) > width:
        head = head[:-1]
    return head


def tail_of(text: str, width: int) -> str:
    """The end of a text that fits `width` columns."""
    tail = text[max(len(text) - width, 0) :] if width > 0 else ""
    while text_width(tail) > width:
        tail = tail[1:]
    return tail
