"""What DCGM's fields prove of a GPU in a span of time, and what they only hint at."""

import pytest

from rerail.tools.dcgm.counters import find_faults
from rerail.tools.dcgm.exposition import read_exposition

START, END = 10_000.0, 20_000.0


def series(name, points, gpu=3, **labels):
    """Expose the same series at several times, as a row of scrapes does."""
    more = "".join(f',{key}="{value}"' for key, value in labels.items())
    for at, value in points:
        text = f'{name}{{gpu="{gpu}",UUID="GPU-{gpu}"{more}}} {value}\n'
        yield from read_exposition(text, at)


def found(*groups):
    samples = [one for group in groups for one in group]
    return find_faults({"n2": samples}, START, END)


def test_an_exposition_is_read_whatever_users_call_their_pods():
    text = (
        "# HELP DCGM_FI_DEV_XID_ERRORS Value of the last XID error encountered.\n"
        'DCGM_FI_DEV_XID_ERRORS{gpu="3",pod="a}\\"b",Hostname="n2"} 79 1732186800000\n'
        'DCGM_FI_DEV_GPU_TEMP{gpu="3"} NaN\n'
        "up 1 1732186800.5\nDCGM_FI_DEV_XID_ERRORS{gpu= broken\n"
    )
    xid, heat, up = read_exposition(text, 5.0)
    assert xid.labels == {"gpu": "3", "pod": 'a}"b', "Hostname": "n2"}
    assert (xid.value, xid.time_s) == (79, 1_732_186_800.0)  # milliseconds in the text format
    assert (heat.time_s, up.time_s) == (5.0, 1_732_186_800.5)  # seconds in OpenMetrics


def test_an_xid_is_dated_by_its_change_and_an_old_one_is_not():
    changed = series("DCGM_FI_DEV_XID_ERRORS", [(12_000, 0), (12_060, 79), (12_120, 79)])
    (fault,) = found(changed)
    assert (fault.node, fault.gpu, fault.uuid, fault.xid) == ("n2", "3", "GPU-3", 79)
    assert (fault.time_s, fault.dated) == (12_060, True)
    for points in ([(12_000, 79), (12_060, 79)], [(12_000, 79)], [(5_000, 0), (12_000, 79)]):
        (old,) = found(series("DCGM_FI_DEV_XID_ERRORS", points))
        assert (old.xid, old.dated, old.time_s) == (79, False, None)
    assert found(series("DCGM_FI_DEV_XID_ERRORS", [(12_000, 79), (12_060, 0)])) == []


def test_what_came_after_the_job_was_not_its_fault():
    late = [(END - 60, 0), (END + 200, 79)]
    assert found(series("DCGM_FI_DEV_XID_ERRORS", late)) == []
    assert found(series("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", late)) == []
    counted = {"xid": "48", "window_size_in_ms": "300000"}
    assert found(series("DCGM_EXP_XID_ERRORS_COUNT", [(END + 500, 1)], **counted)) == []
    just_after = [(END - 60, 0), (END + 30, 79)]  # the scrape after what ended it
    assert found(series("DCGM_FI_DEV_XID_ERRORS", just_after))[0].dated


@pytest.mark.parametrize(("window_ms", "dated"), [(300_000, True), (6_000_000, False)])
def test_an_xid_count_is_of_the_exporter_s_own_window(window_ms, dated):
    counted = series(
        "DCGM_EXP_XID_ERRORS_COUNT", [(14_000, 2)], xid="48", window_size_in_ms=window_ms
    )
    (fault,) = found(counted)
    assert (fault.xid, fault.dated) == (48, dated)


def test_counters_count_by_their_growth_across_a_reset_of_the_driver():
    ecc = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"
    (grown,) = found(series(ecc, [(9_990, 5), (12_000, 5), (12_060, 1), (12_120, 2)]))
    assert (grown.kind, grown.dated, grown.time_s) == ("ecc", True, 12_060)
    assert grown.what.startswith("2 new")
    (old,) = found(series(ecc, [(12_000, 5), (12_060, 5)]))
    assert not old.dated
    assert found(series(ecc, [(12_000, 0), (12_060, 0)])) == []


def test_a_failed_row_remap_is_a_state_and_links_are_only_warnings():
    (rows,) = found(series("DCGM_FI_DEV_ROW_REMAP_FAILURE", [(12_000, 1)]))
    assert (rows.kind, rows.dated, rows.failed) == ("row_remap", True, True)
    replays = "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"
    assert found(series(replays, [(12_000, 0), (12_600, 70)])) == []  # 7 a minute
    (pcie,) = found(series(replays, [(12_000, 0), (12_600, 90)]))
    assert (pcie.kind, pcie.failed) == ("pcie", False)
    crc = "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL"
    assert found(series(crc, [(12_000, 0), (12_060, 12)])) == []
    recovery = "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL"
    (link,) = found(series(recovery, [(12_000, 0), (12_060, 1)]))
    assert (link.kind, link.failed) == ("nvlink", False)


def test_a_gpu_that_falls_silent_among_its_neighbours_is_missed_but_not_after_the_end():
    name = "DCGM_FI_DEV_XID_ERRORS"
    every = [(at, 0) for at in range(12_000, 13_000, 30)]
    neighbours = [series(name, every, gpu=gpu) for gpu in (0, 1, 2)]
    (gone,) = found(series(name, every[:10]), *neighbours)
    assert (gone.kind, gone.gpu, gone.time_s) == ("vanished", "3", 12_270)
    # The whole exporter went away, or GPUs were reset at the end of the job: no fault.
    neighbours = [series(name, every[:10], gpu=gpu) for gpu in (0, 1, 2)]
    assert found(series(name, every[:10]), *neighbours) == []
    late = [(at, 0) for at in range(19_000, 21_000, 30)]
    neighbours = [series(name, late, gpu=gpu) for gpu in (0, 1, 2)]
    assert found(series(name, [(at, 0) for at, _ in late if at < END]), *neighbours) == []
