"""axe-core finds nothing serious on any page, in both themes and on a narrow screen."""

from pathlib import Path

import pytest

from rerail.assistant.web import browser_files
from rerail.assistant.web.browser_files import locked
from rerail.errors import ConfigError

LOCK = Path(__file__).with_name("test_files.yaml")


@pytest.fixture(scope="module")
def axe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("axe")
    try:
        browser_files.fetch(folder, LOCK)
    except ConfigError as error:
        pytest.skip(f"axe-core cannot be had: {error.message}")
    return (folder / locked(LOCK)[0].name).read_text()


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 390)])
def test_no_page_has_a_serious_finding(chromium, served, axe, theme, width):
    # The content policy keeps foreign scripts out, also this one: it is lifted for the measurement alone.
    context = chromium.new_context(
        base_url=served.url, color_scheme=theme, viewport={"width": width, "height": 900}, bypass_csp=True
    )  # fmt: skip
    tab, found = context.new_page(), []
    pages = ("/", f"/incidents/{served.hang}", f"/incidents/{served.planned}", f"/incidents/{served.hang}/log",
             f"/incidents/{served.hang}/chat", f"/incidents/{served.hang}/postmortem", "/fleet?since=3650d", "/diagnose", "/nothing")  # fmt: skip
    for path in pages:
        tab.goto(path, wait_until="load")
        tab.evaluate(axe)
        result = tab.evaluate("axe.run()")
        found += [
            f"{path} {one['id']}: {one['nodes'][0]['html'][:160]}"
            for one in result["violations"] if one["impact"] in ("serious", "critical")
        ]  # fmt: skip
    context.close()
    assert found == []


def test_a_file_that_was_changed_is_not_served(tmp_path):
    for file in locked():
        (tmp_path / file.name).write_bytes((browser_files.FOLDER / file.name).read_bytes())
    browser_files.check(tmp_path)
    (tmp_path / locked()[0].name).write_text("alert(1)")
    with pytest.raises(ConfigError, match="is not the"):
        browser_files.check(tmp_path)
    (tmp_path / locked()[0].name).unlink()
    with pytest.raises(ConfigError, match="is not there"):
        browser_files.check(tmp_path)
