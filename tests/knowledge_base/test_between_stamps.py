"""What came first where clocks say it only between two lines, under other headings, or minutes later."""

from __future__ import annotations

from rerail.assistant.pipeline import diagnose_texts
from rerail.domain.diagnosis import Diagnosis, Outcome

STEPS = "".join(
    f"0: [2026-02-13 21:0{m}:00] iter {m * 20} | loss 4.{m} | 1.9 s\n" for m in range(1, 5)
)
EVICTED = (
    "===== g303 dmesg -T =====\n[Fri Feb 13 {at} 2026] LustreError: 167-0: scratch-OST0014-osc-ffff9c3f: This client was "
    "evicted by scratch-OST0014; in progress operations using this service will fail.\n"
)
SHUT = "4: OSError: [Errno 108] Cannot send after transport endpoint shutdown\n"


def diagnosed(text: str) -> Diagnosis:
    return diagnose_texts({"job.log": text}).diagnosis


def first_line(text: str) -> str:
    fault = diagnosed(text).first_fault
    return "" if fault is None else fault.text


def test_a_line_without_a_time_may_stand_as_late_as_the_next_stamp() -> None:
    later = "1: [rank1]:[W213 21:07:58.310041 TCPStore.cpp:122] [c10d] recvValue failed on SocketImpl(fd=61): reset\n"
    assert "evicted" in first_line(STEPS + SHUT + later + EVICTED.format(at="21:07:52"))
    assert "Errno 108" in first_line(STEPS + SHUT + later + EVICTED.format(at="21:17:52"))


def test_a_service_says_minutes_later_why_it_stopped_a_job() -> None:
    text = STEPS + (
        "[algo-1] W0213 21:05:16.020000 140 torch/distributed/elastic/agent/server/api.py:688] Received Signals.SIGTERM "
        "death signal, shutting down workers\n"
        "2026-02-13 21:06:20 Uploading - Uploading generated training model\n"
        "2026-02-13 21:{}:02 MaxRuntimeExceeded - Training job runtime exceeded MaxRuntimeInSeconds provided\n"
    )
    assert diagnosed(text.format("09")).failure_type == "job_time_limit"
    assert diagnosed(text.format("39")).failure_type == "job_cancelled_or_hangup"


def test_a_file_server_that_answered_again_failed_no_run_that_completed() -> None:
    done = "{'train_runtime': 5122.4, 'train_samples_per_second': 97.6, 'train_loss': 1.8, 'epoch': 1.0}\n"
    kernel = "---- dmesg -T, gn-72 ----\n[Fri Feb 13 21:09:03 2026] nfs: server 10.9.0.5 not responding, still trying\n"
    healed = "[Fri Feb 13 21:12:48 2026] nfs: server 10.9.0.5 OK\n"
    assert diagnosed(STEPS + done + kernel + healed).outcome is Outcome.NO_FAILURE
    assert diagnosed(STEPS + done + kernel).outcome is Outcome.FAILURE


def test_steps_under_another_heading_do_not_outlive_what_stands_above_it() -> None:
    events = (
        "$ kubectl get events\n13m  Warning  Evicted  pod/bert-worker-1  The node was low on resource: ephemeral-storage. "
        "Threshold quantity: 53687091200, available: 48190Mi. Container main was using 412936072Ki.\n"
    )
    steps = "".join(f"step {s} loss 2.0\n" for s in range(10, 90, 10))
    assert (
        diagnosed(f"{events}kubectl -n ml logs bert-master-0\n{steps}").failure_type
        == "k8s_pod_evicted"
    )
    assert diagnosed(events + steps).failure_type != "k8s_pod_evicted"


def test_a_prompt_with_the_environment_of_a_launch_names_the_host_below_it() -> None:
    text = "".join(
        f"[node_rank={n} host=gn-1{n}] $ composer --node_rank {n} train.py\nINFO:composer.cli.launcher:Starting\n"
        for n in (0, 1)
    )
    found = diagnosed(
        text + "OSError: [Errno 28] No space left on device: '/mnt/cache/s.tmp'\n"
    ).first_fault
    assert found is not None
    assert found.node == "gn-11"


def test_what_no_clock_puts_behind_a_table_of_completed_pods_is_no_failed_teardown() -> None:
    table = "NAME            READY   STATUS      RESTARTS   AGE\nbench-worker-1  0/1     Completed   0          31m\n"
    section = (
        "=== logs of bench-worker-1 (host gn-1) ===\n[W1103 12:00:41.118402 socket.cpp:759] [c10d] The IPv6 network addresses "
        "of (bench-master-0, 23456) cannot be retrieved (gai error: -2 - Name or service not known).\n"
    )
    found = diagnosed(table + section)
    assert (found.outcome, found.failure_type) == (Outcome.NO_FAILURE, "no_failure")


def test_the_stamps_of_another_log_below_do_not_date_an_event(diagnose):
    events = (
        "$ kubectl get events -n research --field-selector involvedObject.name=vit-l-2\n"
        "14m         Warning   Evicted               pod/vit-l-2   The node was low on resource: ephemeral-storage. "
        "Threshold quantity: 161060959643, available: 156203440Ki.\n"
    )
    log = "$ kubectl logs -n research vit-l-0\n" + "".join(
        f"[2025-05-20 14:{26 + n}:03] train: epoch 31 step {n} loss 2.{n} lr 3.1e-4\n"
        for n in range(9)
    )
    assert diagnose(events + log).failure_type == "k8s_pod_evicted"
