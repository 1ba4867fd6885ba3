#!/usr/bin/env bash
# Install the Debian packages of the launcher lab, and Slurm with accounting; nothing is started.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
"$here/../cluster/install.sh"
# syslog-ng-core is left out: it takes rsyslog away. README.md says how its launcher is run.
"$here/../cluster/install.sh" openmpi-bin mpich pdsh pssh parallel rsyslog \
  openssh-server openssh-client iproute2 taktuk dsh runit daemontools openjdk-17-jre-headless
