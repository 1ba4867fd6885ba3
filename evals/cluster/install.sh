#!/usr/bin/env bash
# Install Debian's Slurm, munge and MariaDB for the one-machine cluster of `rerail eval cluster`.
# Nothing is started: the cluster starts its own daemons with its own configuration.
# With arguments, install those Debian packages instead, under the same rule.
set -euo pipefail
needed=("$@")
[ $# != 0 ] || needed=(slurmctld slurmd slurmdbd slurmrestd slurm-client munge mariadb-server sudo)
missing=()
for package in "${needed[@]}"; do
  dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
[ "${#missing[@]}" = 0 ] && exit 0
[ "$(id -u)" = 0 ] || { echo "install.sh: run as root, or install: ${missing[*]}" >&2; exit 1; }
export DEBIAN_FRONTEND=noninteractive
# Debian's maintainer scripts start daemons unless a policy forbids it.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
  trap 'rm -f "$policy"' EXIT
fi
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
