"""What a shell's loop prints under the values it goes over is of the pods or hosts that its command names."""

from __future__ import annotations

import pytest

from rerail.log_parsers.prefixes import Origin
from rerail.log_parsers.sections import sections
from rerail.log_parsers.shell_loops import looped


@pytest.mark.parametrize(
    ("command", "whose"),
    [
        (
            '$ for p in master-0 worker-1; do echo "== $p"; kubectl -n ml logs --tail=4 asr-$p; done',
            {"master-0": Origin(place="asr-master-0"), "worker-1": Origin(place="asr-worker-1")},
        ),
        (
            "$ for p in 0 1; do kubectl logs pod/asr-worker-${p} -c pytorch; done",
            {"0": Origin(place="asr-worker-0"), "1": Origin(place="asr-worker-1")},
        ),
        (
            "$ for n in g7 g9; do echo == $n; ssh -q root@dgx-$n.lan dmesg; done",
            {"g7": Origin(node="dgx-g7.lan"), "g9": Origin(node="dgx-g9.lan")},
        ),
        ("$ for h in gn07 gn09; do echo == $h; ssh $h dmesg; done", {}),
        ("$ for p in $(pgrep python); do kubectl logs asr-$p; done", {}),
        ("$ for i in 0 5; do hccn_tool -i $i -link -g; done", {}),
        ("$ kubectl logs asr-worker-1", {}),
    ],
)
def test_whose_the_values_of_a_loop_are(command: str, whose: dict[str, Origin]) -> None:
    assert looped(command) == whose


def test_the_headings_of_a_loop_begin_sections_of_its_pods() -> None:
    log = """\
$ for p in master-0 worker-1; do echo "== $p"; kubectl logs asr-$p; done
== master-0
step 1
== worker-1
step 2
$ ls
== worker-1
step 3
"""
    rows = [(n, line.encode()) for n, line in enumerate(log.splitlines(), 1)]
    found = sections(rows, lambda raw: raw.decode())
    places = [found.origin(number, Origin()).place for number, _ in rows]
    assert places[2] == "asr-master-0"
    assert places[4] == "asr-worker-1"
    assert places[5:] == [None, None, None]  # behind another command a title means something else


@pytest.mark.parametrize(
    ("command", "answers", "whose"),
    [
        (
            "$ for n in gn-7 gn-9; do ssh $n 'hostname; systemctl is-active nvidia-fabricmanager'; done",
            ["gn-7", "active", "gn-9", "failed"],
            ["gn-7", "gn-7", "gn-9", "gn-9"],
        ),
        ("$ hostname; dmesg -T | tail -1", ["gn-7", "[1.0] boom", "gn-9"], ["gn-7"] * 3),
        ("$ ssh gw uptime", ["gn-7", "up 2 days"], [None, None]),
        ("$ hostname -f", ["active", "gn-7"], [None, None]),
        ("$ for n in gn-7 gn-9; do ssh $n 'hostname; date'; done", ["gn-8", "x"], [None, None]),
        ("$ cat hostname.txt", ["gn-7", "x"], [None, None]),
    ],
)
def test_a_command_that_asks_for_the_host_tells_whose_its_answer_is(
    command: str, answers: list[str], whose: list[str | None]
) -> None:
    lines = [line.encode() for line in [command, *answers]]
    found = sections(enumerate(lines, 1), lambda raw: raw.decode())
    told = [found.origin(number, Origin()).node for number in range(2, len(lines) + 1)]
    assert [None if node == "gw" else node for node in told] == whose
