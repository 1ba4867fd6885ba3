"""Asks exporters and a Prometheus server over HTTP: bounded size and time, no redirect, no proxy."""

from __future__ import annotations

import json
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

from rerail.errors import EvidenceError
from rerail.tools.dcgm.counters import FIELDS
from rerail.tools.dcgm.exposition import Sample

MOST_BYTES = 64 << 20
NODES_PER_QUERY = 50


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Whoever answers must not send us, and our token, elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Access:
    """How to ask: the site's authority for certificates, a file with a bearer token, a limit."""

    ca_file: str = ""
    token_file: str = ""
    limit_s: float = 5.0


def get(url: str, access: Access, *, form: Mapping[str, str] | None = None) -> bytes:
    """Return the body of an answer; with `form` the request is a POST.

    Raises:
        EvidenceError: Nobody answers in time, or not with 200, or with more than 64 MiB.
    """
    if not url.startswith(("http://", "https://")):
        raise EvidenceError(f"{url!r} is no http:// or https:// address", subject=url)
    try:
        context = ssl.create_default_context(cafile=access.ca_file or None)
        headers = {"Accept": "text/plain, application/json"}
        if access.token_file:
            token = Path(access.token_file).expanduser().read_text(encoding="ascii").strip()
            headers["Authorization"] = f"Bearer {token}"
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPSHandler(context=context),
            _NoRedirect(),
        )
        data = None if form is None else urllib.parse.urlencode(form).encode()
        request = urllib.request.Request(url, data=data, headers=headers)  # noqa: S310
        deadline = time.monotonic() + access.limit_s
        parts, size = [], 0
        with opener.open(request, timeout=access.limit_s) as answer:
            # Read in parts: a server that drips one byte a second must not hold us up.
            while part := answer.read1(1 << 20):
                size += len(part)
                if size > MOST_BYTES:
                    raise EvidenceError(f"{url}: more than {MOST_BYTES} bytes", subject=url)
                if time.monotonic() > deadline:
                    raise EvidenceError(f"{url}: not whole in {access.limit_s:g} s", subject=url)
                parts.append(part)
        return b"".join(parts)
    except urllib.error.HTTPError as error:
        raise EvidenceError(f"{url}: HTTP {error.code} {error.reason}", subject=url) from None
    except (OSError, HTTPException, ValueError) as error:
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise EvidenceError(f"{url}: {why}", subject=url) from None


def node_of(label: str, nodes: Sequence[str]) -> str | None:
    """Return which of the nodes a label means: `n1`, `n1.example.com` or `n1:9400`, or none."""
    host = re.sub(r":\d+$", "", label)
    for node in nodes:
        if host == node or host.split(".")[0] == node or host == node.split(".")[0]:
            return node
    return None


def ask_prometheus(
    url: str,
    access: Access,
    *,
    selector: str,
    node_label: str,
    nodes: Sequence[str],
    began_s: float,
    ended_s: float,
) -> Iterator[tuple[str, Sample]]:
    """Yield (node, sample) of DCGM's fields between two times, with the times of the scrapes.

    `selector` is further label matchers, `job="dcgm-exporter"`.

    Raises:
        EvidenceError: The server does not answer, or refuses the query.
    """
    span_s = max(1, round(ended_s - began_s))
    for first in range(0, len(nodes), NODES_PER_QUERY):
        some = nodes[first : first + NODES_PER_QUERY]
        hosts = "|".join(re.escape(name).replace("\\-", "-") for name in some)
        pattern = f"(?:{hosts})(?:\\..*)?(?::[0-9]+)?"
        query = (
            f'{{__name__=~"{"|".join(FIELDS)}",{selector},'
            f"{node_label}=~{json.dumps(pattern)}}}[{span_s}s]"
        )
        form = {"query": query, "time": f"{ended_s:.3f}"}
        raw = get(url.rstrip("/") + "/api/v1/query", access, form=form)
        for series in _result(raw, url):
            labels = {str(k): str(v) for k, v in (series.get("metric") or {}).items()}
            node = node_of(labels.get(node_label, ""), some)
            if node is None:
                continue
            for at, value in series.get("values") or []:
                yield node, Sample(labels.get("__name__", ""), labels, float(value), float(at))


def _result(raw: bytes, url: str) -> list[dict[str, Any]]:
    try:
        answer = json.loads(raw)
        if answer["status"] != "success":
            raise EvidenceError(f"{url}: {str(answer.get('error'))[:200]}", subject=url)
        return [one for one in answer["data"]["result"] if isinstance(one, dict)]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise EvidenceError(f"{url}: no answer of Prometheus", subject=url) from None
