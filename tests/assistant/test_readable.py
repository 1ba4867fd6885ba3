"""What a server reads for somebody else: what lies in its folders, as it really is."""

import os

import pytest

from rerail.assistant.readable import discovered, keep_within
from rerail.errors import UsageError
from rerail.log_parsers.sources import Discovery, source_at


@pytest.fixture
def places(tmp_path):
    """A folder that may be read, a file in it, and one elsewhere."""
    inside, outside = tmp_path / "logs", tmp_path / "other.log"
    inside.mkdir()
    (inside / "train.log").write_text("step 1\n")
    outside.write_text("of others\n")
    return inside, outside


def test_a_link_in_a_folder_leads_nowhere_else_and_that_is_told(places):
    inside, outside = places
    (inside / "b.log").symlink_to(outside)
    found = discovered([str(inside)], (inside,))
    assert [one.name for one in found.sources] == ["train.log"]
    assert [one.subject for one in found.problems] == ["b.log"]


def test_of_a_job_only_files_in_the_folders_and_the_words_of_the_scheduler_are_kept(
    places, tmp_path
):
    inside, outside = places
    copies = tmp_path / "copies"
    copies.mkdir()
    (copies / "said").write_text("the scheduler's word\n")
    sources = [source_at(copies / "said", "sacct -j 7", None, None)]
    with outside.open() as held, (inside / "train.log").open() as ours:
        for name, stream in (("out", held), ("in", ours)):
            (copies / name).symlink_to(f"/proc/{os.getpid()}/fd/{stream.fileno()}")
            sources.append(source_at(copies / name, stream.name, None, None))
        found = Discovery(list(sources))
        keep_within(found, (inside,), copies=True)
        assert [one.name for one in found.sources] == ["sacct -j 7", str(inside / "train.log")]
        with pytest.raises(UsageError, match="is not in a folder"):
            keep_within(Discovery(sources[1:2]), (inside,), copies=True)
