"""What each picture shows: the page, how wide, light or dark, and what a person does before it is taken."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rerail.errors import ConfigError
from rerail.evals.pictures.site import Site

if TYPE_CHECKING:
    from playwright.sync_api import Page

WIDE, NARROW = (1440, 1000), (390, 844)


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture; `path` gets the site, `does` the page when it stands."""

    path: Callable[[Site], str]
    dark: bool = False
    size: tuple[int, int] = WIDE
    does: Callable[[Page], object] = lambda tab: None


def _curves(tab: Page) -> None:
    tab.wait_for_selector(".live-chart .u-over")
    _to(tab, "#curves")
    over = tab.locator(".live-chart .u-over").first
    over.hover(position={"x": (over.bounding_box() or {"width": 400})["width"] - 30, "y": 60})


def _asked(tab: Page) -> None:
    tab.wait_for_function("window.htmx !== undefined")
    for number, question in enumerate(("why?", "which ranks?", "what now?"), 1):
        tab.get_by_role("button", name=question, exact=True).click()
        tab.locator("#talk .say.user").nth(number - 1).wait_for()
        tab.locator("#talk .say:last-child:not(.user)").wait_for()


def _to(tab: Page, place: str) -> None:
    tab.evaluate("place => document.querySelector(place).scrollIntoView()", place)


PICTURES: dict[str, Picture] = {
    "incidents-dark": Picture(lambda site: f"{site.jobs}/", dark=True),
    "incident-light": Picture(lambda site: f"{site.jobs}/incidents/{site.lost}"),
    "incident-dark-narrow": Picture(
        lambda site: f"{site.jobs}/incidents/{site.lost}", dark=True, size=NARROW
    ),
    "incident-curves-light": Picture(
        lambda site: f"{site.jobs}/incidents/{site.hang}", does=_curves
    ),
    "log-light": Picture(lambda site: f"{site.jobs}/incidents/{site.hang}/log"),
    "chat-light": Picture(
        lambda site: f"{site.jobs}/incidents/{site.hang}/chat", size=(1440, 680), does=_asked
    ),
    "fleet-light": Picture(
        lambda site: f"{site.year}/fleet?since=2026-01-01",
        does=lambda tab: _to(tab, "#h-chance"),
    ),
}


def take(site: Site, name: str, folder: Path) -> Path:
    """Take a picture and return its file.

    Raises:
        ConfigError: Chromium or playwright is not here.
    """
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        program = None
    if program is None:
        raise ConfigError(
            "pictures need chromium and playwright",
            subject="pictures",
            hint="evals/cluster/install.sh chromium",
        )
    picture, file = PICTURES[name], folder / f"{name}.png"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        tab = browser.new_page(
            viewport={"width": picture.size[0], "height": picture.size[1]},
            color_scheme="dark" if picture.dark else "light",
            reduced_motion="reduce",
        )
        tab.goto(picture.path(site), wait_until="load")
        picture.does(tab)
        tab.screenshot(path=str(file))
        browser.close()
    return file
