#!/usr/bin/env bash
# Make the environment of the launcher lab: torch, the frameworks and mpi4py, apart from rerail's own.
set -euo pipefail
folder=${1:?usage: environment.sh FOLDER}
[ -e "$folder/.complete" ] && exit 0
# uv does not look where pip is told to; the CPU build of torch lies there on some machines.
export UV_FIND_LINKS=${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}}
python3 -m venv "$folder"
"$folder/bin/python" -m pip install --quiet uv
"$folder/bin/uv" pip install --quiet --python "$folder/bin/python" torch==2.13.0 accelerate==1.15.0 \
  lightning==2.6.6 'ray[train]==2.60.0' jax==0.10.2 deepspeed==0.19.8 mpi4py==4.1.2
touch "$folder/.complete"
