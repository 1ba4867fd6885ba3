"""Slack: one message of blocks for each incident, edited in place (chat.postMessage, chat.update).

https://docs.slack.dev/reference/methods/chat.update - text of logs is only ever in `plain_text`
blocks, where no mention, link or formatting works.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rerail.assistant.notify.notice import Notice
from rerail.assistant.notify.service import LIMIT_S, Handle
from rerail.errors import ClusterError, ConfigError

_HEADLINE, _TEXT = 3000, 2000
_GONE = ("message_not_found", "cant_update_message", "edit_window_closed")
_AGAIN = ("ratelimited", "rate_limited", "service_unavailable", "fatal_error", "internal_error")


@dataclass(frozen=True, slots=True)
class SlackService:
    """Writes into one channel with a bot's token (scope chat:write)."""

    channel: str
    token: str = field(repr=False)
    api: str = "https://slack.com/api"
    name: str = "slack"

    def marks(self, notice: Notice) -> str:
        """Return all that is said: an edited message wakes nobody."""
        return notice.digest

    def tell(self, notice: Notice, handle: Handle, *, alone: bool) -> Handle:
        """Write the message, or edit it; one that a person has deleted is written again."""
        del alone
        if not handle and not notice.open:
            return handle
        if handle:
            answer = self._call("chat.update", notice, channel=handle["channel"], ts=handle["ts"])
            if answer is not None:
                return handle
            if not notice.open:
                return handle
        answer = self._call("chat.postMessage", notice, channel=self.channel)
        if answer is None:
            raise ClusterError("slack: the message was not taken", subject=self.name)
        return {"channel": answer["channel"], "ts": answer["ts"]}

    def _call(self, method: str, notice: Notice, **where: str) -> Any:
        """Return Slack's answer, or None where the message to edit is not there any more."""
        try:
            from slack_sdk import WebClient
            from slack_sdk.errors import SlackApiError, SlackClientError
        except ModuleNotFoundError:
            raise ConfigError(
                "Slack's client is not installed",
                subject="notify.slack",
                hint="pip install 'rerail[notify]'",
            ) from None
        body: dict[str, Any] = {**where, "text": plain(notice.title), "blocks": blocks(notice)}
        body |= {"unfurl_links": False, "unfurl_media": False} if "ts" not in where else {}
        client = WebClient(
            self.token, base_url=f"{self.api}/", timeout=round(LIMIT_S), retry_handlers=[]
        )
        try:
            return client.api_call(method, json=body)
        except SlackApiError as error:
            why = str(error.response.get("error", "refused"))
            if why in _GONE:
                return None
            again = why in _AGAIN or error.response.status_code >= 500
            raise ClusterError(
                f"slack: {why}", subject=self.name, hint=_HINTS.get(why, ""), recoverable=again
            ) from None
        except (SlackClientError, OSError, ValueError) as error:
            why = str(getattr(error, "reason", None) or error)
            raise ClusterError(f"slack: {why}", subject=self.name, recoverable=True) from None


_HINTS = {
    "invalid_auth": "is the token that of the bot, xoxb-...?",
    "not_in_channel": "invite the bot into the channel",
    "channel_not_found": "is it the channel's id, and is the bot in it?",
    "missing_scope": "give the bot the scope chat:write",
}


def plain(text: str) -> str:
    """Return text in which nothing is a mention or a link (Slack's escapes)."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def blocks(notice: Notice) -> list[dict[str, Any]]:
    """Return the message: headline, what is known, and the way to the page."""
    mark = ":red_circle:" if notice.open else ":white_check_mark:"
    found: list[dict[str, Any]] = [
        _section(f"{mark} {notice.title}"[:_HEADLINE]),
        {
            "type": "section",
            "fields": [
                _words(f"{word}: {text}"[:_TEXT])
                for word, text in notice.rows()
                if word != "More" or not notice.url
            ],
        },
    ]
    if notice.url:
        found.append(
            {
                "type": "actions",
                "elements": [
                    {
                        "type": "button",
                        "text": {"type": "plain_text", "text": "Evidence, plan and log"},
                        "url": notice.url,
                        "action_id": "open",
                    }
                ],
            }
        )
    found.append({"type": "context", "elements": [_words(f"{notice.incident}  {notice.when}")]})
    return found


def _words(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "plain_text", "text": text, "emoji": True}}
