"""Until when each rank trained, when the failure showed on it, and the chart of both."""

from xml.etree import ElementTree

from rerail.assistant.pipeline import diagnose_texts
from rerail.assistant.postmortem.charts import charts
from rerail.assistant.postmortem.rank_times import rank_times
from rerail.assistant.record import make_incident
from rerail.domain.incident import RankFact

STEPS = "".join(
    f"2026-03-01 03:00:{s:02d} [rank{r}]: step {s} loss 2.{s}\n"
    for s in range(1, 40)
    for r in range(4)
    if not (r == 2 and s > 37)
)
FAILED = "".join(
    f"2026-03-01 03:00:{50 + r} [rank{r}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    for r in (0, 2)
)


def incident(text=STEPS + FAILED):
    return make_incident(diagnose_texts({"train.log": text}), [])


def marks(svg):
    return [e.text for e in ElementTree.fromstring(svg).iter() if e.tag.endswith("title")]


def test_the_record_says_until_when_each_rank_trained_and_when_it_failed():
    ranks = {r.rank: r for r in incident().snapshot.ranks}
    assert [ranks[r].last_step for r in range(4)] == [39, 39, 37, 39]
    assert (ranks[2].last_step_at or "")[11:19] == "03:00:37"
    assert [(ranks[r].failed_at or "")[11:19] for r in range(4)] == ["03:00:50", "", "03:00:52", ""]


def test_the_chart_has_a_bar_for_each_rank_and_a_mark_where_it_failed():
    found = dict(charts(incident()))
    said = marks(found["rank-times"])
    assert said.count("rank 2, last step 37 at 03:00:37, failure at 03:00:52") == 2
    assert len(said) == 6  # four bars, two marks


def test_no_times_no_chart():
    bare = STEPS.replace("2026-03-01 03:00:", "line ")
    assert rank_times(incident(bare)) is None


def test_of_many_ranks_the_suspect_is_drawn():
    one = incident()
    when = "2026-03-01T03:00:39.000Z"
    many = tuple(
        RankFact(rank=r, last_step_at=when, part="suspect" if r == 1337 else "quiet")
        for r in range(4096)
    )
    svg = rank_times(
        one.model_copy(update={"snapshot": one.snapshot.model_copy(update={"ranks": many})})
    )
    assert svg is not None and "256 of 4096 ranks" in svg and len(svg) < 120_000
    assert any(m.startswith("rank 1337,") for m in marks(svg))
