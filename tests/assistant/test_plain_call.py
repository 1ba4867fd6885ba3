"""What is read without the library of the command line is read as the library reads it."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from rerail.assistant.cli import diagnose as command
from rerail.assistant.cli.main import app
from rerail.assistant.cli.plain_call import _SWITCHES, _TEXTS, plain_diagnosis
from rerail.assistant.cli.quick_start import for_call

WORDS = ["a.log", "-", "logs/", "4711", "", "k8s://n/j", "--", "-x", "-qv", "--js", "--rank", "3", "--job=7", "--follow",
    "--help", "--digest", "--attempt", "--no-json", "2h", *_SWITCHES, *_TEXTS]  # fmt: skip


def called_by_the_library(arguments, monkeypatch):
    """Return what the command is called with, every parameter by name; None where it is not called."""
    calls = []
    signature = inspect.signature(command.diagnose_command)

    def noted(*args, **named):
        bound = signature.bind(*args, **named)
        bound.apply_defaults()
        calls.append(dict(bound.arguments))
        return 0

    with monkeypatch.context() as patched:
        patched.setattr(command, "diagnose_command", noted)
        CliRunner().invoke(for_call(app, arguments), arguments)
    return calls[0] if calls else None


def by_name(given_to):
    bound = inspect.signature(command.diagnose_command).bind(**given_to)
    bound.apply_defaults()
    return dict(bound.arguments)


@given(words=st.lists(st.sampled_from(WORDS), max_size=6))
def test_both_read_a_call_alike(words):
    with pytest.MonkeyPatch.context() as monkeypatch:
        arguments = ["diagnose", *words]
        plain = plain_diagnosis(arguments)
        if plain is not None:
            assert by_name(plain) == called_by_the_library(arguments, monkeypatch)


@pytest.mark.parametrize("switch", [*_SWITCHES, *(f"{name} x" for name in _TEXTS)])
def test_every_option_that_is_read_here_is_one_of_the_command_line(switch, monkeypatch):
    arguments = ["diagnose", "a.log", *switch.split()]
    plain = plain_diagnosis(arguments)
    assert plain is not None
    assert by_name(plain) == called_by_the_library(arguments, monkeypatch)


@pytest.mark.parametrize(
    "arguments",
    [[], ["diagnose"], ["scan", "a"], ["diagnose", "a", "--rank", "3"], ["diagnose", "a", "--help"],
     ["diagnose", "a", "--job"], ["diagnose", "a", "--job", "--json"], ["diagnose", "--", "a"], ["diagnose", "a", "-qv"]],
)  # fmt: skip
def test_all_else_is_left_to_the_library(arguments):
    assert plain_diagnosis(arguments) is None
