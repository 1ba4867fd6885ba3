"""What looks like the name of a host, among all the words that carry a number: the words are `host_names.yaml`."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from rerail.cached_yaml import load_cached
from rerail.kept_patterns import kept_pattern
from rerail.lazy_patterns import lazy

PATH = Path(__file__).with_name("host_names.yaml")
_IPV4 = lazy(r"\d{1,3}(?:\.\d{1,3}){3}")
# A host of a cluster carries a number; `v1.2`, `2026-03-01`, `train.py` and `0x7f` do as well.
_WITH_NUMBER = lazy(r"(?=[\w.-]*\d)(?=[\w.-]*[A-Za-z])[A-Za-z0-9][\w.-]{1,80}")

_SHORT = lazy(r"[a-z]\d{2,4}")

# Hosts of one series differ in numbers, or in a letter of their own.
_OF_ITS_OWN = lazy(r"\d+|(?<=[-_.])[A-Za-z](?=$|[-_.])")
_SAID_HOST = r"(?P<host>(?=[A-Za-z0-9_.]*[\d-])[A-Za-z][\w.-]{1,80}?)(?![\w-]|\.\w)"


def series_of(name: str) -> str:
    """Return what the names of all hosts of one series have in common."""
    return _OF_ITS_OWN.sub("0", name)


def is_address(name: str) -> bool:
    """Tell whether a name is an IPv4 address."""
    return _IPV4.fullmatch(name) is not None


def address_in(name: str) -> str | None:
    """Return the address that a name is made of: 10.0.3.7 for ip-10-0-3-7, or None."""
    match = _of_addresses().fullmatch(name)
    return ".".join(part for part in match.groups() if part is not None) if match else None


def is_container_id(name: str) -> bool:
    """Tell whether a name is that of a container without a name."""
    return _container_id().fullmatch(name) is not None


@lru_cache(maxsize=1)
def _container_id() -> re.Pattern[str]:
    return kept_pattern(load_cached(PATH)["container_id"])


def is_no_host(word: str) -> bool:
    """Tell whether a word in front of a colon is a counter, a level or a device, and no host."""
    return is_counter(word) or is_device(word)


def is_counter(word: str) -> bool:
    """Tell whether a word only counts, as step-1 and layer-3 do."""
    return _form("no_host").fullmatch(word) is not None and not is_pod(word)


def is_pod(word: str) -> bool:
    """Tell whether a word is a name that Kubernetes makes of a job's, which may begin with any word."""
    return _form("pods").fullmatch(word) is not None


def is_no_host_as_a_file(word: str) -> bool:
    """Tell whether a log of this name is called after a program or a run, and not after a host."""
    return is_counter(word) or _form("no_host_as_a_file").fullmatch(word) is not None


def is_device(word: str) -> bool:
    """Tell whether a word is a level of a logger or a device of a host."""
    return _form("devices").fullmatch(word) is not None


def is_local(name: str | None) -> bool:
    """Tell whether a name stands for whichever host says it, or for a link of its own, and so for none."""
    return name in _own_names() or (name or "").startswith(_own_prefixes())


@lru_cache(maxsize=16_384)
def looks_like_host(word: str) -> bool:
    """Tell whether a word that a sentence puts where a host stands is one: a counted name or an address."""
    if is_local(word):
        return False
    if _IPV4.fullmatch(word):
        return True
    if not _WITH_NUMBER.fullmatch(word):
        return False
    if _form("no_host_in_a_sentence").fullmatch(word) and not is_pod(word):
        return False
    return "-" in word or not is_no_host(word)


def is_short_name(word: str) -> bool:
    """Tell whether a word is a letter and its number (n17), which is a host where ranks stand beside it."""
    return _SHORT.fullmatch(word) is not None and not is_no_host(word)


@lru_cache(maxsize=16_384)
def may_be_host(word: str) -> bool:
    """Tell whether a word is one where a sentence says of a process that it runs on it: also one that only counts."""
    return looks_like_host(word) or is_numbered_host(word)


def is_numbered_host(word: str) -> bool:
    """Tell whether a word is one for a machine with a number (node2), as who counts the hosts of a job calls one."""
    return _counted().fullmatch(word) is not None


@lru_cache(maxsize=1)
def _counted() -> re.Pattern[str]:
    return kept_pattern(load_cached(PATH)["counted_in_a_sentence"], re.I)


def says_host(line: bytes) -> set[str]:
    """Return the words that a line says to be hosts: behind a word such as `host=`, or in front of a port."""
    if not _hint().search(line):
        return set()
    found = {match["host"] for form in _said() for match in form.finditer(line)}
    return {name for host in found if not is_local(name := host.decode("utf-8", "replace"))}


def own_words(line: bytes) -> set[str]:
    """Return the words without a number that a line says to be the host of its writer, whatever else they may be."""
    if b"on " not in line and b"host" not in line:
        return set()
    found = {match["host"].decode() for match in _own_word().finditer(line)}
    return {word for word in found if not is_local(word.lower()) and not is_no_host(word)}


@lru_cache(maxsize=1)
def _own_word() -> re.Pattern[bytes]:
    return kept_pattern(load_cached(PATH)["own_word"].encode())


@lru_cache(maxsize=1)
def _said() -> tuple[re.Pattern[bytes], ...]:
    forms = [entry_form(raw) for raw in load_cached(PATH)["said_to_be_hosts"]]
    return tuple(kept_pattern(form.replace("%host%", _SAID_HOST).encode()) for form in forms)


@lru_cache(maxsize=1)
def _of_addresses() -> re.Pattern[str]:
    return kept_pattern("|".join(load_cached(PATH)["names_of_addresses"]))


@lru_cache(maxsize=1)
def _hint() -> re.Pattern[bytes]:
    return kept_pattern(str(load_cached(PATH)["host_said_near"]).encode())


@lru_cache(maxsize=1)
def counted_host() -> str:
    """Return the pattern of words that are hosts although they only count."""
    return str(load_cached(PATH)["counted_host"])


@lru_cache(maxsize=1)
def _own_names() -> frozenset[str]:
    data = load_cached(PATH)
    return frozenset([*data["addresses_of_no_node"], *data["names_of_no_node"]])


@lru_cache(maxsize=1)
def _own_prefixes() -> tuple[str, ...]:
    return tuple(load_cached(PATH)["prefixes_of_no_node"])


@lru_cache(maxsize=8)
def _form(key: str) -> re.Pattern[str]:
    return kept_pattern("|".join(f"(?:{entry_form(raw)})" for raw in load_cached(PATH)[key]), re.I)


def entry_form(raw: dict[str, Any]) -> str:
    """Return the pattern of one entry, its words put in."""
    return str(raw["form"]).replace("{words}", f"(?:{'|'.join(raw.get('words', ()))})")
