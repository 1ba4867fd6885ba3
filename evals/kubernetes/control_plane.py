"""Starts and stops a real Kubernetes 1.20 control plane: etcd, kube-apiserver, kube-controller-manager.

There are no kubelets and no scheduler: nodes are objects, and what a kubelet would report of a pod
has to be written to its status. Everything else - validation, access control, watches, the job
controller, garbage collection - is the real thing. `build.sh` makes the programs.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from rerail.errors import UsageError
from rerail.evals.cluster.lab import die_with_parent
from rerail.evals.faultlab.machine import free_ports

PROGRAMS = ("kube-apiserver", "kube-controller-manager")
BIN = "KUBERNETES_BIN"
# Controllers that need no kubelet; those of nodes would find that no kubelet reports.
CONTROLLERS = "job,namespace,serviceaccount,serviceaccount-token,garbagecollector"
TRAINING_KINDS = Path(__file__).with_name("training_kinds.yaml")


def cannot_run() -> str:
    """Return why the control plane cannot run here, or an empty string; it has to be asked for."""
    folder = os.environ.get(BIN)
    if not folder:
        return f"opt-in: `make kubernetes` builds it and sets {BIN}"
    absent = [name for name in PROGRAMS if not os.access(Path(folder) / name, os.X_OK)]
    absent += [] if shutil.which("etcd") else ["etcd"]
    return f"not there: {', '.join(absent)} (make kubernetes)" if absent else ""


class ControlPlane:
    """One control plane on the loopback address; use it as a context manager.

    Raises:
        UsageError: A program is missing or does not come up (on enter).
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or Path(tempfile.mkdtemp(prefix="rerail-kubernetes-"))
        self.token = secrets.token_hex(16)
        self.etcd_port, self._peer_port, self.port = free_ports(3)
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        """The address of the API server."""
        return f"https://127.0.0.1:{self.port}"

    def __enter__(self) -> ControlPlane:
        """Start everything."""
        if reason := cannot_run():
            raise UsageError(reason, subject="kubernetes", hint="make kubernetes")
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop everything and remove the folder."""
        self.stop()

    def start(self) -> None:
        """Start the three programs and create the kinds of training jobs."""
        key = self.root / "service-accounts.key"
        subprocess.run(
            ["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True
        )
        (self.root / "tokens.csv").write_text(f'{self.token},admin,admin,"system:masters"\n')
        bins = Path(os.environ[BIN])
        etcd = f"http://127.0.0.1:{self.etcd_port}"
        peer = f"http://127.0.0.1:{self._peer_port}"
        self._spawn(
            *("etcd", shutil.which("etcd") or "etcd", f"--data-dir={self.root}/etcd"),
            *(f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}"),
            *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"),
            *(f"--initial-cluster=default={peer}", "--unsafe-no-fsync"),
        )
        self._wait("etcd", lambda: self._get(f"{etcd}/health"))
        self._spawn(
            *("kube-apiserver", str(bins / "kube-apiserver"), f"--etcd-servers={etcd}"),
            *("--bind-address=127.0.0.1", f"--secure-port={self.port}", "--insecure-port=0"),
            *(f"--cert-dir={self.root}/certs", f"--token-auth-file={self.root}/tokens.csv"),
            *("--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24"),
            *("--service-account-issuer=https://kubernetes.default.svc", "--allow-privileged=true"),
            f"--service-account-signing-key-file={key}",
            f"--service-account-key-file={key}",
            # Watches of jobs are answered by etcd, so that a compaction makes a version too old.
            "--watch-cache-sizes=jobs.batch#0",
        )
        self._wait("kube-apiserver", lambda: self.get("/readyz"))
        self._spawn(
            *("kube-controller-manager", str(bins / "kube-controller-manager")),
            *(f"--kubeconfig={self.kubeconfig()}", f"--controllers={CONTROLLERS}"),
            *("--leader-elect=false", "--port=0", "--secure-port=0"),
            f"--service-account-private-key-file={key}",
        )
        self._create_training_kinds()
        self._wait("default service account", lambda: self._has_token("default"))

    def _spawn(self, name: str, *command: str) -> None:
        with (self.root / f"{name}.log").open("ab") as out:
            self._children[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.root,
                preexec_fn=die_with_parent,
            )

    def _wait(self, what: str, ready: Callable[[], object], limit_s: float = 60.0) -> None:
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if ready():
                    return
            time.sleep(0.1)
        logs = [path.read_text(errors="replace")[-600:] for path in self.root.glob("*.log")]
        raise UsageError(
            f"the control plane did not reach: {what}", subject="kubernetes", hint="\n".join(logs)
        )

    @staticmethod
    def _get(url: str) -> bytes:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - loopback
            return bytes(answer.read())

    def get(self, path: str) -> bytes:
        """Return the body of a GET as the administrator.

        Raises:
            OSError: The server does not answer, or refuses.
        """
        import ssl

        trust = ssl.create_default_context(cafile=str(self.certificate))
        request = urllib.request.Request(  # noqa: S310 - loopback
            self.url + path, headers={"Authorization": f"Bearer {self.token}"}
        )
        with urllib.request.urlopen(request, timeout=5, context=trust) as answer:  # noqa: S310
            return bytes(answer.read())

    @property
    def certificate(self) -> Path:
        """The server's own certificate, which it signed itself."""
        return self.root / "certs" / "apiserver.crt"

    def kubeconfig(self) -> Path:
        """Return a configuration file of the administrator."""
        path = self.root / "kubeconfig"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [
                {
                    "name": "here",
                    "cluster": {
                        "server": self.url,
                        "certificate-authority": str(self.certificate),
                    },
                }
            ],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "admin"}}],
        }
        path.write_text(json.dumps(content))
        path.chmod(0o600)
        return path

    def client(self, impersonate: str = "") -> Any:
        """Return an ApiClient of the official library, as the administrator or as somebody else."""
        from kubernetes import client

        settings = client.Configuration()
        settings.host = self.url
        settings.ssl_ca_cert = str(self.certificate)
        settings.api_key = {"authorization": f"Bearer {self.token}"}
        settings.retries = False
        api: Any = client.ApiClient(settings)
        if impersonate:
            # Bindings name the account itself, so its groups need not be given.
            api.set_default_header("Impersonate-User", impersonate)
        return api

    def _create_training_kinds(self) -> None:
        import yaml
        from kubernetes.client import ApiextensionsV1Api

        with self.client() as api:
            calls: Any = ApiextensionsV1Api(api)
            made = list(yaml.safe_load_all(TRAINING_KINDS.read_text()))
            for one in made:
                calls.create_custom_resource_definition(one)
            for one in made:
                group, version = one["spec"]["group"], one["spec"]["versions"][0]["name"]
                path = f"/apis/{group}/{version}/{one['spec']['names']['plural']}"
                self._wait(path, partial(self.get, path))

    def _has_token(self, namespace: str) -> bool:
        found = json.loads(self.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default"))
        return bool(found.get("secrets"))

    def create_namespace(self, name: str) -> None:
        """Create a namespace and wait until pods can be created in it."""
        from kubernetes.client import CoreV1Api

        with self.client() as api:
            calls: Any = CoreV1Api(api)
            calls.create_namespace({"metadata": {"name": name}})
        self._wait(f"namespace {name}", lambda: self._has_token(name))

    def compact(self) -> None:
        """Make etcd forget the past: watches from an older version get 410 Gone."""
        base = f"http://127.0.0.1:{self.etcd_port}/v3/kv"
        now = json.loads(self._post(f"{base}/range", {"key": "AA=="}))["header"]["revision"]
        self._post(f"{base}/compaction", {"revision": now, "physical": True})

    @staticmethod
    def _post(url: str, body: dict[str, object]) -> bytes:
        request = urllib.request.Request(url, data=json.dumps(body).encode())  # noqa: S310
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310 - loopback
            return bytes(answer.read())

    def kill_server(self) -> None:
        """Kill the API server the hard way."""
        child = self._children.pop("kube-apiserver")
        child.kill()
        child.wait()

    def stop(self) -> None:
        """End every program and remove the folder."""
        for name in ("kube-controller-manager", "kube-apiserver", "etcd"):
            child = self._children.pop(name, None)
            if child is None:
                continue
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(timeout=10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        shutil.rmtree(self.root, ignore_errors=True)
