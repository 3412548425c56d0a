"""Pages in a real browser without a network, and everything that goes wrong on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


class Opened:
    """A page in the browser, with everything that went wrong on it: messages, errors, dialogs, requests."""

    def __init__(self, browser: Browser, address: str, **options: Any) -> None:
        self.address = address
        self.wrong: list[str] = []
        self.page: Page = browser.new_page(viewport={"width": 1400, "height": 900}, **options)
        self.page.on("console", lambda message: self.wrong.append(message.text))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", self._dismiss)
        self.page.on("request", lambda request: self.wrong.append(request.url))
        self.page.goto(address)
        assert self.wrong.pop(0) == address  # the only request that is allowed

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
        return self.page.locator("#kernel code").inner_text()

    def ticks(self) -> list[str]:
        return self.page.locator(".axis text").all_text_contents()
