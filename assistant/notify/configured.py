"""The services that the policy file names, with their secrets."""

from __future__ import annotations

from rerail.assistant.notify.alertmanager import AlertmanagerService
from rerail.assistant.notify.by_apprise import AppriseService
from rerail.assistant.notify.pagerduty import PagerDutyService
from rerail.assistant.notify.service import Service, secret
from rerail.assistant.notify.slack import SlackService
from rerail.errors import ConfigError
from rerail.recovery.site_policy import Notify
from rerail.settings import Settings


def services_of(notify: Notify, settings: Settings) -> tuple[list[Service], list[ConfigError]]:
    """Return the services in the order of the policy's keys, and why others cannot be used.

    One without its secret keeps neither the others nor recovery from working.
    """
    found: list[Service] = []
    wrong: list[ConfigError] = []
    for make in (_slack, _pagerduty, _alertmanager, _apprise):
        try:
            found += make(notify, settings)
        except ConfigError as error:
            wrong.append(error)
    return found, wrong


def _slack(notify: Notify, settings: Settings) -> list[Service]:
    if (slack := notify.slack) is None:
        return []
    given = settings.slack_token.get_secret_value()
    token = secret("slack", slack.token_file, given, "RERAIL_SLACK_TOKEN")
    return [SlackService(slack.channel, token, slack.api)]


def _pagerduty(notify: Notify, settings: Settings) -> list[Service]:
    if (pager := notify.pagerduty) is None:
        return []
    given = settings.pagerduty_key.get_secret_value()
    key = secret("pagerduty", pager.key_file, given, "RERAIL_PAGERDUTY_KEY")
    return [PagerDutyService(pager.api, key)]


def _alertmanager(notify: Notify, settings: Settings) -> list[Service]:
    if (manager := notify.alertmanager) is None:
        return []
    file = manager.token_file
    token = secret("alertmanager", file, "", "alertmanager.token_file") if file else ""
    return [AlertmanagerService(manager.url, token, manager.keep_h)]


def _apprise(notify: Notify, settings: Settings) -> list[Service]:
    if (many := notify.apprise) is None:
        return []
    given = settings.apprise_urls.get_secret_value()
    urls = secret("apprise", many.urls_file, given, "RERAIL_APPRISE_URLS")
    return [AppriseService(url) for url in dict.fromkeys(urls.split())]
