"""Outputs of dcgmi in the forms of its versions: what fails, on which GPU, and what is cut off."""

import json

import pytest

from rerail.errors import EvidenceError
from rerail.tools.dcgm.reports import looks_like_report, read_report

HEALTH = {
    "header": ["Health Monitor Report"],
    "body": {
        "Overall Health": {"value": "Failure"},
        "GPU": {
            "children": {
                "0": {
                    "value": "Warning",
                    "children": {
                        "Errors": {
                            "children": {
                                "PCIe system": {
                                    "value": "Warning",
                                    "overflow": ["Detected more than 8 PCIe replays per", "minute"],
                                }
                            }
                        }
                    },
                },
                "3": {
                    "value": "Failure",
                    "children": {"Errors": {"children": {"Memory system": {"value": "Failure"}}}},
                },
            }
        },
    },
}
TABLE = """\
+---------------------------+----------------------------------------------------------+
| Health Monitor Report                                                                |
+===========================+==========================================================+
| Overall Health            | Failure                                                  |
| GPU                       |                                                          |
| -> 0                      | Warning                                                  |
|    -> Errors              |                                                          |
|       -> PCIe system      | Warning                                                  |
|                           | Detected more than 8 PCIe replays per                    |
|                           | minute                                                   |
| -> 3                      | Failure                                                  |
|    -> Errors              |                                                          |
|       -> Memory system    | Failure                                                  |
+---------------------------+----------------------------------------------------------+
"""


def results(of, key, gpu, status, **more):
    return {"name": of, "results": [{key: gpu, "status": status, **more}]}


def told(text):
    return [(one.gpu, one.kind, one.failed, one.what) for one in read_report(text, "n2", 7.0)]


@pytest.mark.parametrize("text", [json.dumps(HEALTH), TABLE], ids=["json", "table"])
def test_health_tells_failures_from_warnings(text):
    assert looks_like_report(text)
    warns = "dcgmi health: PCIe system: warning: Detected more than 8 PCIe replays per minute"
    assert told(text) == [
        ("0", "health", False, warns),
        ("3", "health", True, "dcgmi health: Memory system: failure"),
    ]
    assert told(text.replace("Failure", "Healthy").replace("Warning", "Healthy")) == []


def test_diagnostics_of_both_generations_name_the_gpu_and_leave_software_out():
    three = {
        "DCGM GPU Diagnostic": {
            "test_categories": [
                {
                    "category": "Deployment",
                    "tests": [
                        results("Persistence Mode", "gpu_ids", "0,1", "Fail"),
                        None,
                        results("Page Retirement/Row Remap", "gpu_ids", "1", "Fail"),
                    ],
                },
                {"category": "Hardware", "tests": [results("Memory", "gpu_ids", "0", "Pass")]},
            ]
        }
    }
    assert told("WARNING: odd\n" + json.dumps(three)) == [
        ("1", "diagnostic", True, "dcgmi diag: Page Retirement/Row Remap failed")
    ]
    warning = [{"error_id": 83, "warning": "GPU 5 computed 2 wrong values"}]
    four = {
        "DCGM Diagnostic": {
            "test_categories": [
                {
                    "category": "Stress",
                    "tests": [
                        {
                            "name": "diagnostic",
                            "results": [
                                {"entity_group": "GPU", "entity_id": 4, "status": "Pass"},
                                {
                                    "entity_group": "GPU",
                                    "entity_id": 5,
                                    "status": "Fail",
                                    "warnings": warning,
                                },
                                {"entity_group": "CPU", "entity_id": 0, "status": "Fail"},
                            ],
                        }
                    ],
                }
            ]
        }
    }
    what = "dcgmi diag: diagnostic failed: GPU 5 computed 2 wrong values"
    assert told(json.dumps(four)) == [("5", "diagnostic", True, what)]
    table = (
        "Successfully ran diagnostic for group.\n| Diagnostic                | Result |\n"
        "| Denylist                  | Fail   |\n| Targeted Stress           | Fail - GPU: 3, 5 |\n"
    )
    assert [one[0] for one in told(table)] == ["3", "5"]


@pytest.mark.parametrize(
    "text",
    [json.dumps(HEALTH)[:-9], "[]", "{}", "Error: Health watches not enabled.", '{"body": []}',
     '{"DCGM Diagnostic": {"version": "4.2.3"}}'],
)  # fmt: skip
def test_an_output_that_says_nothing_is_no_clean_bill(text):
    with pytest.raises(EvidenceError):
        told(text)
