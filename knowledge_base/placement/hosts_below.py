"""Hosts that a command prints one a line: the file of hosts that a scheduler wrote, or a list that it expanded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.phrases import phrase
from rerail.knowledge_base.placement.rank_tables import Order
from rerail.log_parsers.host_names import series_of
from rerail.log_parsers.view import LogView


def hosts_below(case: Case, view: LogView) -> Iterator[tuple[LogLine, list[str]]]:
    """Yield each command of a file that prints the job's hosts, with the names that follow, as often as they stand there.

    They are of one series: the first line that is not, or that holds more than a name, is no longer the command's. A
    list that goes on in lines that were not kept is none: its hosts would be taken for all of the job's.
    """
    for number in case.lines_with(view, "prints-hosts-of-job"):
        command, hosts = view.line(number), list[str]()
        for below in range(number + 1, view.numbers[-1] + 1):
            line = view.line(below)
            if line is None:
                hosts = []
                break
            match = phrase("host-alone").fullmatch(line.message)
            if match is None or (hosts and series_of(match["host"]) != series_of(hosts[0])):
                break
            hosts.append(match["host"])
        if command is not None and hosts:
            yield command, hosts


def orders_below(case: Case) -> Iterator[Order]:
    """Yield the hosts of such commands in the order of their ranks; a name that stands there several times has as many."""
    for view in case.views:
        for command, hosts in hosts_below(case, view):
            times = Counter(hosts)
            counts = tuple(times.values()) if len(hosts) > len(times) else (0,) * len(times)
            if len(times) > 1:
                yield Order(tuple(times), counts, command, needs_known=True)
