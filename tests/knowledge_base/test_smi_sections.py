"""A state in `nvidia-smi -q` is joined to the GPU whose section it stands in, and to its rank."""

from __future__ import annotations

from collections.abc import Callable

from rerail.domain.diagnosis import Diagnosis

Run = Callable[[str | dict[str, str]], Diagnosis]


def report(buses: tuple[str, ...], hot: str, attached: int) -> str:
    text = f"\n==============NVSMI LOG==============\n\nAttached GPUs                             : {attached}\n"
    for bus in buses:
        state = "Active" if bus == hot else "Not Active"
        text += (
            f"GPU 00000000:{bus}:00.0\n    Product Name                          : NVIDIA H100 80GB HBM3\n"
            "    Clocks Event Reasons\n        Idle                              : Not Active\n"
            f"        HW Slowdown                       : {state}\n"
            f"            HW Thermal Slowdown           : {state}\n"
        )
    return text


def slow(init: str = "") -> str:
    rows = (
        f"[rank0]: step {s} loss {3 - s / 999:.4f} step_time {1.0 if s < 99 else 1.6}s\n"
        for s in range(1, 200)
    )
    return init + "".join(rows)


def test_the_header_above_names_the_device_and_its_rank(diagnose: Run) -> None:
    init = (
        "node7:100:101 [1] NCCL INFO ncclCommInitRankConfig comm 0x55d5c8a0 rank 9 nranks 16 cudaDev 1 nvmlDev 1 "
        "busId 5d000 commId 0x3f8a - Init COMPLETE\n"
    )
    found = diagnose({"smi.txt": report(("1B", "5D"), "5D", 2), "train.log": slow(init)})
    assert found.failure_type == "slow_gpu"
    assert found.suspects.ranks == [9]
    assert [(g.node, g.gpu) for g in found.suspects.gpus] == [
        ("node7", "00000000:5D:00.0"),
        ("node7", 1),
    ]


def test_the_place_in_a_list_of_some_devices_is_no_index(diagnose: Run) -> None:
    found = diagnose({"smi.txt": report(("5D",), "5D", 8), "train.log": slow()})
    assert [g.gpu for g in found.suspects.gpus] == ["00000000:5D:00.0"]
