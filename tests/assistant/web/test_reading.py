"""The strips above the list of incidents say what is known, and nothing in the place of what is not."""

from types import SimpleNamespace

from rerail.assistant.web.reading import _categories


def found(leaf: str, hours: float | None) -> tuple[SimpleNamespace, SimpleNamespace]:
    return (
        SimpleNamespace(true_type=leaf),
        SimpleNamespace(cost=SimpleNamespace(idle_gpu_hours=hours)),
    )


def test_hours_that_no_log_tells_are_not_shown_as_none_lost():
    bars = _categories(
        [
            found("cuda_oom", None),
            found("loss_nan", 0.0),
            found("loss_nan", None),
            found("no", 2.25),
        ]
    )
    assert {bar.count: bar.more for bar in bars if bar.count == 2} == {2: "0.0 GPU-h"}
    assert [bar.more for bar in _categories([found("cuda_oom", 0.01)])] == ["< 0.1 GPU-h"]
    assert [bar.more for bar in bars if bar.count == 1] in (["", "2.2 GPU-h"], ["2.2 GPU-h", ""])
