"""Leaves that no single line shows: code concludes them from numbers, counts or absence."""

CODED_LEAVES = frozenset(
    {
        "process_killed_unexplained",
        "process_exit_unexplained",
        "fail_slow_unexplained",
        "loss_divergence",
        "nccl_timeout_unexplained",
        "teardown_hang_or_abort",
    }
)
