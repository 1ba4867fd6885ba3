#!/usr/bin/env bash
# Build kube-apiserver and kube-controller-manager 1.20.2 from Debian's own source package, and
# install etcd: `make kubernetes` runs the adapter's tests on them. Argument: the folder for the two
# programs. Debian bookworm's source package holds the whole upstream tree with vendor/, so the
# compiler needs no network. Nothing of the system's package sources is changed.
set -euo pipefail
bin=$(realpath -m "${1:?folder for the programs}")
programs=(kube-apiserver kube-controller-manager)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

"$here/../cluster/install.sh" etcd-server
ready=yes
for program in "${programs[@]}"; do [ -x "$bin/$program" ] || ready=no; done
[ "$ready" = no ] || { echo "build.sh: $bin holds ${programs[*]} already"; exit 0; }
"$here/../cluster/install.sh" golang-go dpkg-dev make rsync golang-github-modern-go-reflect2-dev

work=$bin.build
mkdir -p "$work/lists/partial" "$bin"
cat >"$work/debian.sources" <<SOURCES
Types: deb-src
URIs: http://deb.debian.org/debian
Suites: bookworm
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
SOURCES
apt=(-qq -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts=/dev/null
  -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work" -o APT::Sandbox::User=root
  -o Dir::Etc::SourceList="$work/debian.sources")
tree=$work/go/src/k8s.io/kubernetes
if [ ! -d "$tree" ]; then
  (cd "$work" && apt-get "${apt[@]}" update && apt-get "${apt[@]}" source kubernetes)
  mkdir -p "$(dirname "$tree")"
  mv "$work"/kubernetes-1.20*/ "$tree"
fi
# The vendored reflect2 1.0.1 reads maps wrongly from Go 1.18 on: the server dies at the first object
# of a custom kind. Debian's 1.0.2 is made for it.
vendored=$tree/vendor/github.com/modern-go/reflect2
rm -f "$vendored"/*.go "$vendored"/*.s
cp /usr/share/gocode/src/github.com/modern-go/reflect2/*.{go,s} "$vendored/"
cat >"$work/version" <<'VERSION'
KUBE_GIT_COMMIT='debian'
KUBE_GIT_TREE_STATE='clean'
KUBE_GIT_VERSION='v1.20.2'
KUBE_GIT_MAJOR='1'
KUBE_GIT_MINOR='20'
VERSION
started=$SECONDS
(
  cd "$tree"
  export GOPATH=$work/go GOCACHE=$work/cache GOTOOLCHAIN=local KUBE_GIT_VERSION_FILE=$work/version
  export GOFLAGS=-p=2 KUBE_BUILD_PLATFORMS= PATH=/usr/lib/go/bin:$PATH
  nice -n 10 make WHAT="$(printf 'cmd/%s ' "${programs[@]}")"
)
for program in "${programs[@]}"; do
  find "$tree/_output" -type f -name "$program" -perm -u+x -exec install -m 755 {} "$bin/" \;
done
rm -rf "$work"
echo "build.sh: built ${programs[*]} within $((SECONDS - started)) s in $bin"
