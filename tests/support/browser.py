"""Pages in a real browser without a network, and everything that goes wrong on them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page, ViewportSize

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WINDOW: ViewportSize = {"width": 1400, "height": 900}
_BLANK = "about:blank"
PATIENCE = 5_000
"""Milliseconds in which anything on a page has to be there."""
TELLS_ERRORS = 'addEventListener("error", (event) => console.error(event.message))'
"""Errors that a browser gives to pages alone, as those of loops of a ResizeObserver."""
SETTLED = """async () => {
  for (let [same, last] = [0, null]; same < 3; ) {
    await new Promise(requestAnimationFrame);
    const now = [...document.querySelectorAll("section")].map((one) => one.offsetHeight).join();
    same = now === last ? same + 1 : 0;
    last = now;
  }
}"""
"""Waits until no section has changed its height for three frames: a page fits what it draws to its widths in later ones."""
_IDLE: WeakKeyDictionary[Browser, Page] = WeakKeyDictionary()
"""A blank page of each browser: a new page takes a process and a fifth of a second, and another address in it hardly any."""


class Opened:
    """A page in the browser, with everything that went wrong on it: messages, errors, dialogs, requests."""

    def __init__(self, browser: Browser, address: str, **options: Any) -> None:
        self.address = address
        self.wrong: list[str] = []
        self._browser = None if options else browser
        idle = None if options else _IDLE.pop(browser, None)
        self.page: Page = idle or browser.new_page(viewport=WINDOW, **options)
        self.page.set_default_timeout(PATIENCE)
        if idle is None:
            self.page.add_init_script(TELLS_ERRORS)
        self._listeners: dict[Any, Any] = {
            "console": lambda message: self.wrong.append(message.text),
            "pageerror": lambda error: self.wrong.append(str(error)),
            "dialog": self._dismiss,
            "request": lambda request: self.wrong.append(request.url),
        }
        for event, listener in self._listeners.items():
            self.page.on(event, listener)
        self.page.goto(address)
        assert self.wrong.pop(0) == address.partition("#")[0]  # the only request that is allowed

    def settle(self) -> None:
        """Wait until the page has fitted everything to the width of its window, however slow the machine is."""
        self.page.evaluate(SETTLED)

    def wait_until(self, expression: str) -> None:
        """Wait until an expression is true on the page. It is asked from outside: the page forbids to evaluate text in it."""
        deadline = time.monotonic() + PATIENCE / 1000
        while not self.page.evaluate(expression):
            assert time.monotonic() < deadline, f"{expression} did not become true"
            self.page.wait_for_timeout(20)

    def close(self) -> None:
        """Leave the page, blank and as wide as a new one, to the next of this browser without options."""
        if self._browser is None or self._browser in _IDLE:
            self.page.close()
            return
        for event, listener in self._listeners.items():
            self.page.remove_listener(event, listener)
        self.page.goto(_BLANK)
        self.page.mouse.move(0, 0)
        self.page.set_viewport_size(WINDOW)
        self.page.emulate_media(media="null")
        _IDLE[self._browser] = self.page

    def _dismiss(self, dialog: Dialog) -> None:
        self.wrong.append(dialog.message)
        dialog.dismiss()

    def rows(self) -> list[str]:
        """The kernels in the table from top to bottom."""
        return self.page.locator("#hotspots tbody td.kernel").all_inner_texts()

    def chosen(self) -> tuple[list[str], list[str]]:
        """The numbers of the kernels selected in the table, and of those selected on the plot."""
        selected = self.page.locator("#hotspots tr[aria-selected=true]")
        numbers = [one.get_attribute("data-number") or "" for one in selected.all()]
        points = [one.get_attribute("data-number") or "" for one in self.page.locator(".point.chosen").all()]
        return numbers, points

    def name_of_chosen(self) -> str:
        return self.page.locator("#kernel code.name").inner_text()

    def ticks(self) -> list[str]:
        return self.page.locator(".axis text").all_text_contents()
