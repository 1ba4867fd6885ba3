"""Each form of a word that is no host says what it is, shows an example, and is read by it."""

import re

import pytest

from rerail.cached_yaml import load_cached
from rerail.log_parsers import host_names
from rerail.log_parsers.host_names import PATH, entry_form, is_local, looks_like_host

ENTRIES = [
    pytest.param(entry, id=f"{key}: {entry['what']}")
    for key in ("devices", "no_host", "no_host_in_a_sentence", "pods")
    for entry in load_cached(PATH)[key]
]


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_matches_its_examples_and_nothing_that_it_excludes(entry):
    form = re.compile(entry_form(entry), re.I)
    assert entry["matches"]
    assert all(form.fullmatch(word) for word in entry["matches"])
    assert not any(form.fullmatch(word) for word in entry.get("must_not_match", ()))


@pytest.mark.parametrize("word", ["gn-03", "dgx-b-17", "ip-10-0-1-5", "10.0.1.5", "tz-h100-17"])
def test_a_name_of_a_cluster_is_a_host(word):
    assert looks_like_host(word)


@pytest.mark.parametrize("word", ["train3.py", "v1.2", "h100", "ost12", "mlx5_0", "localhost"])
def test_what_only_carries_a_number_is_none(word):
    assert not looks_like_host(word)


def test_the_own_address_of_every_host_names_none():
    assert is_local("127.0.0.1") and is_local("localhost") and not is_local(None)
    assert host_names.is_no_host("epoch-3") and not host_names.is_no_host("gn-3")


def test_a_word_of_any_sentence_names_no_host():
    assert all(map(is_local, ("of", "the", "which"))) and not is_local("theta")
