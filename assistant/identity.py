"""Who acts: the account that logged in, and when another name may be given."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from rerail.errors import RecoveryError
from rerail.recovery.site_policy import SitePolicy

NO_LOGIN = 2**32 - 1
"""What the kernel says where nobody logged in (proc(5), loginuid)."""


def login() -> str:
    """Return the account that logged in, whatever became of it since: no variable can change it."""
    try:
        number = int(Path("/proc/self/loginuid").read_text())
    except (OSError, ValueError):
        number = NO_LOGIN
    if number == NO_LOGIN:
        number = os.getuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # a container without a user database
        return f"uid {number}"


def acting_person(by: str | None, policy: SitePolicy, *, strict: bool) -> str:
    """Return under which name a decision is recorded: the login, or `by` where the site lets it.

    Where approvers are named, or `strict`, only the login counts.

    Raises:
        RecoveryError: Another name was given than that of the login, and only the login counts.
    """
    own = login()
    if by in (None, own) or not (strict or policy.approvals.names_somebody):
        return by or own
    raise RecoveryError(
        f"--by {by}: this is the login of {own}; where approvers are named, two persons are needed "
        "or the breaker is closed, only the login counts",
        subject=by,
        hint=f"act from a login of {by}",
    )
