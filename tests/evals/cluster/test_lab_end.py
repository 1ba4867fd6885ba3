"""The end of a cluster ends its own processes, and none of those who asked for it."""

import json
import os
import subprocess
import sys
import time


def sleeper(root, **more):
    environment = {**os.environ, "SLURM_CONF": f"{root}/etc/slurm.conf"}
    return subprocess.Popen(["sleep", "60"], env=environment, **more)


def test_who_exported_the_cluster_s_variables_survives_its_end(tmp_path):
    root = tmp_path / "lab"
    root.mkdir()
    daemon = sleeper(root, start_new_session=True)
    left_behind = sleeper(root, start_new_session=True)
    beside = sleeper(root)  # `| tee` in the same terminal
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)  # took an old number
    (root / "lab.json").write_text(json.dumps({"slurmd.n1": daemon.pid, "old": stranger.pid}))
    try:
        # As `timeout 60 rerail eval cluster down FOLDER` in a shell that exported SLURM_CONF.
        program = "import sys; from pathlib import Path\nfrom rerail.evals.cluster.lab import "
        program += "stop_from; stop_from(Path(sys.argv[1]))"
        done = subprocess.run(
            ["timeout", "60", sys.executable, "-c", program, str(root)],
            env={**os.environ, "SLURM_CONF": f"{root}/etc/slurm.conf"},
            timeout=60,
            check=False,
        )
        assert done.returncode == 0
        assert daemon.wait(5) and left_behind.wait(5)
        time.sleep(0.1)
        assert beside.poll() is None and stranger.poll() is None
        assert not root.exists()
    finally:
        for one in (daemon, left_behind, beside, stranger):
            one.kill()
            one.wait()
