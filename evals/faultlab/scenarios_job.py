"""Scenarios whose fault lies in the job: code, data, tensors, collectives, checkpoints."""

from __future__ import annotations

from rerail.evals.faultlab.scenarios import STANDALONE, Scenario, Truth

CODE = "fix_code_or_config_do_not_restart"
CONFIG = "fix_config_then_restart"
DATA = "fix_data_then_restart"
ONCE = "restart_as_is"
TESTS = "run_node_health_tests"
BACK = "roll_back_to_previous_checkpoint"
SKIP = "roll_back_checkpoint_and_skip_data"
HUMAN = "page_human"
DONE = "no_action_results_complete"
# torch 2.13.0 gives a restarted gloo job the rendezvous store of the attempt before, with the dead
# addresses still in it: ranks dial peers that are gone, or wait for ever. So each attempt gets its
# own store here.
OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}

SCENARIOS = (
    Scenario(
        "healthy",
        "healthy",
        "All ranks train to the end.",
        Truth("no_failure", None, None, "none", accept_actions=(DONE,)),
    ),
    Scenario(
        "healthy_caught_error",
        "healthy",
        "One rank logs the full traceback of an error that it caught; the run completes.",
        Truth("no_failure", None, None, "none", accept_actions=(DONE,)),
        hooks="metrics_retry",
    ),
    Scenario(
        "restart_succeeds",
        "restart",
        "A rank is killed; attempt 2 resumes and completes.",
        Truth(
            "no_failure",
            None,
            None,
            "none",
            accept_actions=(DONE, ONCE, TESTS),
        ),
        hooks="killed_once",
        torchrun=(*STANDALONE, "--max-restarts", "2"),
        env=OWN_STORE,
    ),
    Scenario(
        "restarts_exhausted",
        "restart",
        "The same error after each of two restarts.",
        Truth("failure", "python_exception", 1, CODE),
        hooks="throughput_always",
        torchrun=(*STANDALONE, "--max-restarts", "2"),
        env=OWN_STORE,
    ),
    Scenario(
        "exception_one_rank",
        "python",
        "A metric divides by zero on one rank.",
        Truth("failure", "python_exception", 2, CODE),
        hooks="throughput",
        quick=True,
    ),
    Scenario(
        "shape_mismatch",
        "python",
        "The head of one rank has the wrong width.",
        Truth("failure", "tensor_mismatch", 1, CODE),
        hooks="wide_head",
    ),
    Scenario(
        "dtype_mismatch",
        "python",
        "The head of one rank has the wrong type.",
        Truth("failure", "tensor_mismatch", 3, CODE),
        hooks="double_head",
    ),
    Scenario(
        "index_out_of_range",
        "python",
        "A token of one shard lies outside the vocabulary.",
        Truth(
            "failure",
            "data_schema_error",
            3,
            DATA,
            accept_leaves=("python_exception",),
            accept_actions=(CODE,),
        ),
        prepare="token_out_of_range",
    ),
    Scenario(
        "unused_parameter",
        "python",
        "A layer takes no part in the loss; DDP refuses.",
        Truth("failure", "ddp_autograd_error", None, CODE),
        hooks="unused_layer",
    ),
    Scenario(
        "exit_code",
        "process",
        "One rank leaves with exit code 42 and no trace.",
        Truth(
            "failure",
            "process_exit_unexplained",
            1,
            HUMAN,
            accept_actions=(CODE, ONCE, TESTS),
        ),
        hooks="exit_code",
    ),
    Scenario(
        "early_exit",
        "process",
        "One rank alone stops early, with exit code 0.",
        Truth(
            "failure",
            "rank_divergence",
            1,
            CODE,
            accept_leaves=("process_exit_unexplained",),
        ),
        hooks="early_stop",
    ),
    Scenario(
        "nan_loss",
        "numerical",
        "A batch of one rank has only zero weights: 0 / 0.",
        Truth(
            "failure",
            "loss_nan",
            1,
            SKIP,
            accept_leaves=("gpu_sdc_suspected",),
            accept_actions=(DATA, TESTS),
        ),
        prepare="zero_weights",
    ),
    Scenario(
        "nan_unnoticed",
        "numerical",
        "The loss is NaN from one step on and nobody checks it.",
        Truth("failure", "loss_nan", None, SKIP, accept_actions=(DATA, BACK, CODE)),
        prepare="zero_weights",
        script=("--no-finite-check",),
    ),
    Scenario(
        "hang_one_rank",
        "communication",
        "One rank waits for a lock until the others time out.",
        Truth(
            "failure",
            "nccl_timeout_unexplained",
            2,
            ONCE,
            accept_leaves=("nccl_slow_rank_timeout", "gloo_connection_failure"),
            accept_actions=(TESTS, "restart_and_exclude_suspect_node"),
        ),
        hooks="lock_held",
    ),
    Scenario(
        "monitored_barrier",
        "communication",
        "A monitored barrier names the rank that hangs.",
        Truth(
            "failure",
            "nccl_timeout_unexplained",
            2,
            ONCE,
            accept_leaves=("nccl_slow_rank_timeout", "rank_divergence"),
            accept_actions=(TESTS, "restart_and_exclude_suspect_node"),
        ),
        hooks="monitored_barrier",
    ),
    Scenario(
        "deadlock",
        "communication",
        "One rank waits for a message while the others reduce.",
        Truth(
            "failure",
            "rank_divergence",
            1,
            CODE,
            accept_leaves=("nccl_timeout_unexplained",),
            accept_actions=(ONCE, TESTS),
        ),
        hooks="wait_for_peer",
    ),
    Scenario(
        "extra_collective",
        "communication",
        "One rank reduces a number that nobody else does.",
        Truth("failure", "rank_divergence", 3, CODE),
        hooks="extra_reduce",
    ),
    Scenario(
        "uneven_data",
        "communication",
        "The shard of one rank is shorter than the others.",
        Truth(
            "failure",
            "rank_divergence",
            3,
            CODE,
            accept_actions=(DATA,),
        ),
        prepare="short_shard",
    ),
    Scenario(
        "slow_evaluation",
        "communication",
        "Rank 0 evaluates longer than the time-out.",
        Truth("failure", "nccl_slow_rank_timeout", 0, CONFIG, accept_actions=(CODE,)),
        hooks="long_evaluation",
    ),
    Scenario(
        "dataloader_worker_killed",
        "data",
        "A data loader worker gets SIGKILL.",
        Truth(
            "failure",
            "dataloader_worker_killed",
            1,
            "reduce_memory_then_restart",
            accept_actions=(ONCE, TESTS),
        ),
        hooks="worker_killed",
    ),
    Scenario(
        "dataloader_worker_exception",
        "data",
        "A sample has no field `tokens`.",
        Truth(
            "failure",
            "data_schema_error",
            2,
            DATA,
            accept_leaves=("python_exception",),
            accept_actions=(CODE,),
        ),
        prepare="missing_field",
    ),
    Scenario(
        "dataloader_hang",
        "data",
        "A data loader worker stalls in storage; the loader times out.",
        Truth("failure", "dataloader_hang", 3, CONFIG, accept_actions=(ONCE, TESTS)),
        hooks="worker_stalled",
        script=("--loader-timeout", "4", "--collective-timeout", "20"),
    ),
    Scenario(
        "data_corrupt",
        "data",
        "One line of a shard is cut in the middle.",
        Truth("failure", "data_corrupt_sample", 0, DATA),
        prepare="truncated_line",
    ),
    Scenario(
        "data_missing",
        "data",
        "The shard of one rank is not there.",
        Truth("failure", "file_not_found", 3, CONFIG, accept_actions=(DATA,)),
        prepare="missing_shard",
    ),
    Scenario(
        "checkpoint_corrupt",
        "checkpoint",
        "The newest checkpoint is cut in half.",
        Truth(
            "failure",
            "checkpoint_corrupt",
            None,
            BACK,
        ),
        prepare="truncated_checkpoint",
    ),
    Scenario(
        "checkpoint_zeroed",
        "checkpoint",
        "The newest checkpoint holds only zeros.",
        # torch takes a file of zeros for an old format and says only that.
        Truth(
            "failure",
            "checkpoint_corrupt",
            None,
            BACK,
            accept_leaves=("checkpoint_incompatible",),
            accept_actions=(CONFIG, CODE),
        ),
        prepare="zeroed_checkpoint",
    ),
    Scenario(
        "checkpoint_mismatch",
        "checkpoint",
        "The checkpoint is of a wider model.",
        Truth("failure", "checkpoint_incompatible", None, CONFIG, accept_actions=(CODE,)),
        prepare="wider_checkpoint",
    ),
    Scenario(
        "checkpoint_missing",
        "checkpoint",
        "The checkpoint to resume from does not exist.",
        Truth(
            "failure",
            "checkpoint_missing",
            None,
            BACK,
            accept_leaves=("file_not_found",),
            accept_actions=(CONFIG,),
        ),
        script=("--resume", "{root}/ckpt/step_000400.pt"),
    ),
    Scenario(
        "checkpoint_unsafe_pickle",
        "checkpoint",
        "The checkpoint holds a class that is refused.",
        Truth(
            "failure",
            "checkpoint_incompatible",
            None,
            CONFIG,
            accept_leaves=("checkpoint_corrupt",),
            accept_actions=(CODE, BACK),
        ),
        prepare="unsafe_checkpoint",
    ),
    Scenario(
        "killed_in_save",
        "checkpoint",
        "The writing rank is killed while it saves.",
        Truth(
            "failure",
            "process_killed_unexplained",
            0,
            ONCE,
            accept_leaves=("host_oom_kill",),
            accept_actions=(TESTS, HUMAN, "reduce_memory_then_restart"),
        ),
        hooks="killed_in_save",
    ),
)
