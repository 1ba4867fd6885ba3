"""What a server reads for somebody else: what lies in its folders, as it really is."""

import pytest

from rerail.assistant.readable import discovered


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
