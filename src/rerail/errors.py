"""The whole tree of errors that rerail raises on purpose.

    RerailError
    |- UsageError        the command line or a file name given on it
    |- EvidenceError     a log, dump or series is missing, unreadable or empty
    |- RuleError         a rule or catalogue file is not valid
    |- OutputError       what was asked for cannot be written: the disk is full or broken
    |- StoreError        the incident store cannot be opened, read or written
    |- ModelError        a language model's endpoint is absent, failing or not usable
    |- ClusterError      a scheduler's command failed, timed out or was refused
    |- RecoveryError     a plan, approval or action is not valid any more
    `- ConfigError       a setting has a wrong name or value

Each error says what failed on which subject, and a hint names the next command to try. An error
that a retry may cure is `recoverable`.
"""

from __future__ import annotations


class RerailError(Exception):
    """Base of every expected failure: a message, its subject and a hint."""

    exit_code = 70

    def __init__(
        self, message: str, *, subject: str = "", hint: str = "", recoverable: bool = False
    ) -> None:
        super().__init__(message)
        self.message = message
        self.subject = subject
        self.hint = hint
        self.recoverable = recoverable


class UsageError(RerailError):
    """The command line asks for something that does not exist."""

    exit_code = 2


class EvidenceError(RerailError):
    """Evidence is missing, unreadable or empty."""

    exit_code = 11


class RuleError(RerailError):
    """A rule or catalogue file is not valid."""

    exit_code = 2


class OutputError(RerailError):
    """A file that the command line names cannot be written, and its name is not the reason."""

    exit_code = 74


class StoreError(RerailError):
    """The incident store cannot be opened, read or written."""

    exit_code = 74


class ModelError(RerailError):
    """A language model's endpoint is absent, failing or not usable."""

    exit_code = 69


class ClusterError(RerailError):
    """A scheduler's command failed, timed out or was refused; recoverable when it may come back."""

    exit_code = 75


class RecoveryError(RerailError):
    """A plan, approval or action is not valid any more, or was never."""

    exit_code = 2


class ConfigError(RerailError):
    """A setting has an unknown name or a wrong value."""

    exit_code = 2
