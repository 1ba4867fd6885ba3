"""Every failure type has a runbook section of the same shape; a site's own page wins."""

import re

from rerail.knowledge_base.runbook_pages import FOLDER, runbook_documents, runbook_pages, sections
from rerail.knowledge_base.taxonomy import category_titles, leaves
from rerail.settings import load_settings


def test_every_leaf_has_a_section_on_the_page_of_its_family():
    pages = runbook_pages()
    assert set(pages) == set(leaves())
    assert {page.leaf: page.file for page in pages.values()} == {
        leaf.id: f"{leaf.category}.md" for leaf in leaves().values()
    }
    assert {p.stem for p in FOLDER.glob("*.md")} == set(category_titles())


def test_every_section_says_what_to_look_for_check_do_and_not_do():
    for page in runbook_pages().values():
        parts = re.findall(r"\*\*(Looks like|Check|Do|Not)\*\* (.+)", page.text)
        assert [name for name, _ in parts] == ["Looks like", "Check", "Do", "Not"], page.leaf
        assert all(len(text) > 7 for _, text in parts), page.leaf


def test_no_heading_is_lost_to_a_misspelt_leaf():
    for path in FOLDER.glob("*.md"):
        headings = re.findall(r"^## (\S+)", path.read_text(), re.MULTILINE)
        assert headings == [p.leaf for p in sections(path.read_text(), path.name)], path.name
        assert len(headings) == len(set(headings))


def test_a_site_page_replaces_the_shipped_one(tmp_path, monkeypatch):
    (tmp_path / "ours.md").write_text("# Ours\n\n## cuda_oom\nCall Bo.\n\n## no_such_leaf\nx\n")
    monkeypatch.setenv("RERAIL_RUNBOOKS_DIR", str(tmp_path))
    load_settings.cache_clear()
    runbook_pages.cache_clear()
    try:
        assert "Call Bo." in runbook_pages()["cuda_oom"].text
        assert len(runbook_documents()) == len(leaves())
    finally:
        monkeypatch.undo()
        load_settings.cache_clear()
        runbook_pages.cache_clear()
