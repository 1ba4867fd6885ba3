"""Which configuration the Kubernetes client takes, and what is said where there is none."""

import pytest

from rerail.errors import ClusterError
from rerail.tools.clusters.kubernetes_read import default_api

CONFIG = """\
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://head.example:6443"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: x}}]
current-context: c
"""


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


def test_without_any_the_error_says_what_was_looked_for_and_nothing_is_printed(capfd):
    with pytest.raises(ClusterError, match=r"~/\.kube/config is not there.* service account"):
        default_api()
    assert capfd.readouterr() == ("", "")


def test_of_a_list_of_files_those_that_are_there_are_read(monkeypatch, tmp_path):
    (tmp_path / "two").write_text(CONFIG)
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'one'}:{tmp_path / 'two'}")
    assert default_api().configuration.host == "https://head.example:6443"


def test_a_damaged_file_is_named(monkeypatch, tmp_path):
    (tmp_path / "config").write_text("clusters: [")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with pytest.raises(ClusterError, match=f"{tmp_path}/config: while parsing"):
        default_api()
