"""A warning printed all day leaves room for the exception that ends the job."""

from __future__ import annotations

from rerail.log_parsers.room import (
    CONTEXTS_PER_WORDING,
    HITS_PER_SIGNATURE,
    HITS_PER_WORDING,
    LAST_HITS,
)
from rerail.log_parsers.scan import Signature, make_scanner
from rerail.log_parsers.sources import Source
from rerail.log_parsers.survey import survey_bytes

SIGNATURES = (Signature(r"[A-Z]\w{0,60}(?:Error|Warning): ", wants_context=True),)


def test_a_late_exception_is_kept_where_a_warning_used_up_the_hits() -> None:
    scanner = make_scanner(SIGNATURES, cache=None, engine="re")
    plain = b"".join(b"[rank3]: step %d of the run\n" % i for i in range(30))
    many = b"".join(
        plain + b"[rank3]: UserWarning: slow path taken %d times\n" % i for i in range(1_500)
    )
    late = b"[rank3]: ValueError: labels out of range: 17\n" * (HITS_PER_WORDING + 9)
    found = survey_bytes(
        Source(None, "a.log"), many + plain + late + plain * 40 + many, SIGNATURES, scanner
    )
    assert not found.whole
    first = (many + plain).count(b"\n") + 1
    hits = {hit.line for hit in found.hits}
    assert set(range(first, first + HITS_PER_WORDING)) <= hits
    assert found.kept[first - 1] == b"[rank3]: step 29 of the run"
    assert found.counts[0] == 3_000 + HITS_PER_WORDING + 9
    # One more for the label, seen the first time beyond the limit.
    assert len(hits) <= HITS_PER_SIGNATURE + HITS_PER_WORDING + LAST_HITS + 1
    assert len(found.kept) < HITS_PER_SIGNATURE + 90 * CONTEXTS_PER_WORDING + 2_000
