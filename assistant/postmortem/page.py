"""One HTML file from a post-mortem's Markdown: no script, no link, no outside resource; prints well."""

from __future__ import annotations

import re
from base64 import b64encode
from html import escape

from markdown_it import MarkdownIt

_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_CHART = re.compile(r"!\[([a-z_-]+)\]\([^)\n]*\)")
_PLAIN = re.compile(r"\\(.)")  # the escapes of Markdown, undone
_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff;
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.45rem; line-height: 1.25; border-bottom: 2px solid #222; padding-bottom: .4rem; }
h2 { font-size: 1.1rem; margin-top: 1.8rem; border-bottom: 1px solid #ccc; }
table { border-collapse: collapse; width: 100%; font-size: .86rem; }
th, td { text-align: left; vertical-align: top; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid #e3e3e3;
  overflow-wrap: break-word; }
th { color: #555; font-weight: 600; white-space: nowrap; }
td:first-child { white-space: nowrap; }
code { font: .82rem/1.35 ui-monospace, monospace; background: #f4f4f4; padding: 0 .2em; overflow-wrap: anywhere; }
figure { margin: 1rem 0; } svg { max-width: 100%; height: auto; }
@media print {
  body { margin: 0; max-width: none; font-size: 10.5pt; }
  h2 { break-after: avoid; } tr, figure, li { break-inside: avoid; } thead { display: table-header-group; }
}
@page { margin: 18mm 16mm; }
"""


def with_charts(markdown: str, charts: tuple[tuple[str, str], ...]) -> str:
    """Return the Markdown with its charts inside, for who gets the one file alone."""
    drawn = dict(charts)

    def put(match: re.Match[str]) -> str:
        if match[1] not in drawn:
            return match[0]
        packed = b64encode(drawn[match[1]].encode()).decode()
        return f"![{match[1]}](data:image/svg+xml;base64,{packed})"

    return _CHART.sub(put, markdown)


def page(markdown: str, charts: tuple[tuple[str, str], ...] = ()) -> str:
    """Return a whole HTML page. Charts stand where the Markdown names them."""
    text = _COMMENT.sub("", markdown)
    drawn = dict(charts)
    names: list[str] = []

    def hold(match: re.Match[str]) -> str:
        if match[1] not in drawn:
            return match[1]
        names.append(match[1])
        return f"CHART-PLACE-{len(names) - 1}-END"

    text = _CHART.sub(hold, text)
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable("table")
    # Log text is escaped already; whatever slips through still cannot become a link or an image.
    parser.disable(["link", "image", "autolink", "html_inline", "html_block", "reference"])
    body = parser.render(text)
    for index, name in enumerate(names):
        figure = f"<figure>{drawn[name]}</figure>"
        place = f"CHART-PLACE-{index}-END"
        body = body.replace(f"<p>{place}</p>", figure).replace(place, figure)
    title = next(
        (_PLAIN.sub(r"\1", row[2:]) for row in text.splitlines() if row.startswith("# ")),
        "Post-mortem",
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
