"""The services that a site's people are told by, as the policy file names them; secrets are never in it.

A secret is read from the file that is named here, else from the environment: a policy file is read
by many and kept in version control.
"""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def web_address(url: str) -> str:
    """Return an address without the slash at its end; refuse what is none, or holds a password."""
    parts = urlsplit(url)
    if url and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ValueError(f"{url!r} is no http:// or https:// address")
    if parts.username or parts.password:
        raise ValueError("an address in the policy file holds no password; name a file for it")
    return url.rstrip("/")


class Slack(_Part):
    """A Slack app's bot in one channel, by its id; the token from `token_file` or `RERAIL_SLACK_TOKEN`."""

    channel: Annotated[str, Field(min_length=1)]
    token_file: str = ""
    api: str = "https://slack.com/api"
    _known = field_validator("api")(web_address)

    @field_validator("channel")
    @classmethod
    def _by_id(cls, channel: str) -> str:
        # A message is edited by the id of its channel; Slack takes a name for new ones only.
        if not re.fullmatch(r"[CGD][A-Z0-9]{6,}", channel):
            raise ValueError(f"{channel!r} is no channel's id (C0123456789; in its details)")
        return channel


class PagerDuty(_Part):
    """An Events v2 integration; its key from `key_file` or `RERAIL_PAGERDUTY_KEY`."""

    key_file: str = ""
    api: str = "https://events.pagerduty.com"
    _known = field_validator("api")(web_address)


class Alertmanager(_Part):
    """An Alertmanager; an alert ends by itself after `keep_h` hours should rerail be gone."""

    url: Annotated[str, Field(min_length=1)]
    token_file: str = ""
    keep_h: Annotated[float, Field(gt=0, le=720)] = 24.0
    _known = field_validator("url")(web_address)


class Apprise(_Part):
    """Any of Apprise's services: one URL a line in `urls_file`, or words in `RERAIL_APPRISE_URLS`."""

    urls_file: str = ""
