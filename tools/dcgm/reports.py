"""Reads what `dcgmi health --check` and `dcgmi diag` print, as JSON (`-j`) or as their table.

The forms of DCGM 2 to 4 are known: health is a tree of `value`, `children` and `overflow`;
diagnostics are `test_categories` of `tests` of `results`, by `gpu_ids` until 3 and by `entity_id`
from 4 on (https://github.com/NVIDIA/DCGM, dcgmi/Health.cpp and nvvs).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from rerail.errors import EvidenceError
from rerail.tools.dcgm.counters import GpuFault

# What a test of software or configuration says is no fault of the GPU.
SOFTWARE = (
    *("denylist", "nvml", "cuda", "permission", "persistence", "environment", "graphics"),
    *("inforom", "software", "fabric manager"),
)
_ROW = re.compile(r"^\|\s?(?P<name>[^|]*?)\s*\|\s*(?P<value>[^|]*?)\s*\|\s*$")
_ENTITY = re.compile(r"^\s*->\s*(?P<gpu>\d+)$")
_SYSTEM = re.compile(r"^\s*->\s*(?P<system>[A-Za-z].*)$")
_FAILED_GPU = re.compile(r"(?i)GPUs?:?\s*(?P<gpus>\d+(?:\s*,\s*\d+)*)")
_BAD = {"failure": True, "fail": True, "warning": False, "warn": False}


def looks_like_report(text: str) -> bool:
    """Tell whether a text is an output of dcgmi that this module reads."""
    head = text[:65_536]
    return "Overall Health" in head or ("DCGM" in head and "iagnostic" in head)


def read_report(text: str, node: str, time_s: float | None) -> list[GpuFault]:
    """Return what an output of dcgmi holds against the GPUs of a node.

    Raises:
        EvidenceError: It is no complete output of `dcgmi health` or `dcgmi diag`.
    """
    start = text.find("{")
    if 0 <= start and "|" not in text[:start]:
        try:
            content = json.loads(text[start:])
        except (ValueError, RecursionError):
            raise EvidenceError(f"dcgmi's output of {node} is cut off", subject=node) from None
        return list(_from_json(content, node, time_s))
    if "Overall Health" in text:
        return list(_health_table(text, node, time_s))
    if "iagnostic" in text:
        return list(_diagnostic_table(text, node, time_s))
    raise EvidenceError(
        f"no output of `dcgmi health -c` or `dcgmi diag` for {node}",
        subject=node,
        hint="dcgmi health --check --json",
    )


def _from_json(content: Any, node: str, time_s: float | None) -> Iterator[GpuFault]:
    if not isinstance(content, dict):
        raise EvidenceError(f"dcgmi's output of {node} is no object", subject=node)
    body = content.get("body", content)
    if isinstance(body, dict) and "Overall Health" in body:
        yield from _health(_children(body.get("GPU")), node, time_s)
        return
    for name in ("DCGM GPU Diagnostic", "DCGM Diagnostic"):
        if isinstance(content.get(name), dict):
            yield from _diagnostic(content[name], node, time_s)
            return
    raise EvidenceError(f"dcgmi's output of {node} holds no report", subject=node)


def _children(part: Any) -> dict[str, Any]:
    """Return what lies below a part of the tree, with or without a level called `children`."""
    if not isinstance(part, dict):
        return {}
    below = part.get("children", part)
    return below if isinstance(below, dict) else {}


def _word(part: Any) -> str:
    return str(part.get("value", "") if isinstance(part, dict) else part)


def _health(gpus: dict[str, Any], node: str, time_s: float | None) -> Iterator[GpuFault]:
    for gpu, part in gpus.items():
        if not gpu.isdigit():
            continue
        told = False
        for system, error in _children(_children(part).get("Errors")).items():
            word = _word(error).lower()
            if word not in _BAD:
                continue
            told = True
            more = error.get("overflow", []) if isinstance(error, dict) else []
            words = " ".join(map(str, more)) if isinstance(more, list) else str(more)
            yield _health_fault(node, gpu, system, word, words, time_s)
        if not told and _word(part).lower() in _BAD:
            yield _health_fault(node, gpu, "GPU", _word(part).lower(), "", time_s)


def _health_fault(
    node: str, gpu: str, system: str, word: str, words: str, time_s: float | None
) -> GpuFault:
    what = f"dcgmi health: {system}: {word}" + (f": {words}" if words else "")
    return GpuFault(node, gpu, "health", what[:200], time_s, failed=_BAD[word])


def _health_table(text: str, node: str, time_s: float | None) -> Iterator[GpuFault]:
    """Read the tree of the table: `-> 0` opens a GPU, `-> PCIe system` an error of it."""
    gpu, system, word, words = "", "", "", ""

    def told() -> Iterator[GpuFault]:
        if gpu and system and word in _BAD:
            yield _health_fault(node, gpu, system, word, words.strip(), time_s)

    for line in text.splitlines():
        row = _ROW.match(line)
        if row is None:
            continue
        name, value = row["name"], row["value"]
        if not name:
            words += f" {value}"
            continue
        yield from told()
        system, word, words = "", "", ""
        if entity := _ENTITY.match(name):
            gpu = entity["gpu"]
        elif not name.lstrip().startswith("->"):
            gpu = ""  # another group, NvSwitch for example
        elif (found := _SYSTEM.match(name)) and found["system"] != "Errors":
            system, word = found["system"], value.lower()
    yield from told()


def _diagnostic(content: dict[str, Any], node: str, time_s: float | None) -> Iterator[GpuFault]:
    if not isinstance(content.get("test_categories"), list):
        raise EvidenceError(f"dcgmi diag ran no test on {node}", subject=node)
    for category in content["test_categories"]:
        for test in (category or {}).get("tests") or []:
            if not isinstance(test, dict) or _is_software(str(test.get("name", ""))):
                continue
            for result in test.get("results") or []:
                if not isinstance(result, dict):
                    continue
                failed = _BAD.get(str(result.get("status", "")).lower())
                if not failed:
                    continue
                if str(result.get("entity_group", "GPU")).upper() != "GPU":
                    continue
                gpus = str(result.get("entity_id", result.get("gpu_ids", "?")))
                words = _warnings(result.get("warnings"))
                for gpu in gpus.split(","):
                    what = f"dcgmi diag: {test['name']} failed" + (f": {words}" if words else "")
                    yield GpuFault(node, gpu.strip(), "diagnostic", what[:200], time_s)


def _warnings(found: Any) -> str:
    items = found if isinstance(found, list) else [found] if found else []
    return "; ".join(
        str(one.get("warning", one)) if isinstance(one, dict) else str(one) for one in items
    )


def _is_software(name: str) -> bool:
    lowered = name.lower()
    return any(word in lowered for word in SOFTWARE)


def _diagnostic_table(text: str, node: str, time_s: float | None) -> Iterator[GpuFault]:
    for line in text.splitlines():
        row = _ROW.match(line)
        if row is None or not row["value"].lower().startswith("fail") or _is_software(row["name"]):
            continue
        named = _FAILED_GPU.search(row["value"])
        for gpu in re.split(r"\s*,\s*", named["gpus"]) if named else ("?",):
            name = row["name"].strip(" ->")
            yield GpuFault(node, gpu, "diagnostic", f"dcgmi diag: {name} failed", time_s)
