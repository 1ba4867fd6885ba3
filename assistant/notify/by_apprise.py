"""Any of Apprise's services (mail, Teams, Discord, ntfy, ...): a message, and one when it is over.

None of them is asked to edit. https://appriseit.com/services/
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

from rerail.assistant.notify.notice import Notice
from rerail.assistant.notify.service import Handle
from rerail.errors import ClusterError, ConfigError

_PINGS = re.compile(r"@(?=everyone|here|channel|all\b)|(?<=\])\(|<(?=[!@#h])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AppriseService:
    """Tells by one URL; its name holds a hash of it, since the URL is a secret."""

    url: str = field(repr=False)

    @property
    def name(self) -> str:
        """Kind of service and hash of the URL."""
        scheme = re.sub(r"[^a-z0-9]", "", self.url.partition(":")[0].lower())[:16]
        return f"apprise-{scheme}-{hashlib.sha256(self.url.encode()).hexdigest()[:8]}"

    def marks(self, notice: Notice) -> str:
        """Return what is worth a further message: the verdict, that somebody is asked, that it is over."""
        asks = notice.standing.startswith("waits for a person")
        return f"{notice.open}|{notice.headline}|{notice.status}|{asks}"

    def tell(self, notice: Notice, handle: Handle, *, alone: bool) -> Handle:
        """Send one message."""
        del alone
        if not handle and not notice.open:
            return handle
        try:
            import apprise
        except ModuleNotFoundError:
            raise ConfigError(
                "Apprise is not installed",
                subject="notify.apprise",
                hint="pip install 'rerail[notify]'",
            ) from None
        sender = apprise.Apprise()
        if not sender.add(self.url):
            raise ClusterError(f"{self.name}: Apprise does not know this URL", subject=self.name)
        kind = apprise.NotifyType.FAILURE if notice.open else apprise.NotifyType.SUCCESS
        body = "\n".join(f"{word}: {text}" for word, text in notice.rows())
        if not sender.notify(
            title=harmless(notice.title)[:250],
            body=harmless(body),
            notify_type=kind,
            body_format=apprise.NotifyFormat.TEXT,
        ):
            raise ClusterError(
                f"{self.name}: it was not taken", subject=self.name, recoverable=True
            )
        return {"told": notice.incident}


def harmless(text: str) -> str:
    """Return text in which no service sees a mention of everybody, or Markdown's link or image."""
    return _PINGS.sub(_broken, text)


def _broken(found: re.Match[str]) -> str:
    gap = "\N{WORD JOINER}"
    return f"{gap}(" if found[0] == "(" else f"{found[0]}{gap}"
