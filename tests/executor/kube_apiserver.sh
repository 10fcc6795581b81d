#!/usr/bin/env bash
# Builds kube-apiserver from Debian's source package `kubernetes` (complete, with its vendored modules) with Debian's Go.
# Usage: kube_apiserver.sh DIR; leaves DIR/kube-apiserver and keeps nothing else. Does nothing if it is there already.
# Takes about nine minutes of two cores and 2 GB of disk. Needs: apt-get install golang-go dpkg-dev
set -euo pipefail
target=$(realpath -m "${1:?the directory for kube-apiserver}")
[ -x "$target/kube-apiserver" ] && exit 0
for tool in go apt-get; do
  command -v "$tool" >/dev/null || { echo "kube-apiserver cannot be built: there is no $tool here (Debian: golang-go)" >&2; exit 2; }
done
work=$target/build
mkdir -p "$work/lists/partial"
cd "$work"

# Sources come from where this machine gets its packages, by a list of its own, so that nothing under /etc changes.
archive_url=$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' 'Component: main' 'Codename: bookworm' 'Label: Debian' |
  sort -u | head -n 1)
[ -n "$archive_url" ] || { echo "kube-apiserver cannot be built: no package list of Debian 12 here (apt-get update)" >&2; exit 2; }
echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive_url bookworm main" >sources.list
apt() {
  apt-get -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$work/lists" \
    -o APT::Sandbox::User=root "$@"
}
archive='kubernetes_1.20.5+really1.20.2.orig.tar.gz'
[ -s "$archive" ] || { apt update && apt source --download-only kubernetes; }
echo "b83c0780efb182d928dc63d46488a847f161f04e40a94b96bf5247dd671ecdfc  $archive" | sha256sum --check --quiet

# GOPATH mode: in module mode this Go wants to change go.mod. The tag leaves the cloud providers out.
export GOPATH=$work/gopath GOCACHE=$work/cache GOMAXPROCS=2 CGO_ENABLED=0 GO111MODULE=off GOPROXY=off GOFLAGS=
root=$GOPATH/src/k8s.io/kubernetes
mkdir -p "$root"
[ -f "$root/go.mod" ] || tar -xzf "$archive" -C "$root" --strip-components=1
cd "$root"

# One file is generated in a normal build: the OpenAPI definitions of all packages that are marked for it.
definitions=pkg/generated/openapi/zz_generated.openapi.go
if [ ! -s "$definitions" ]; then
  go build -o "$work/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
  packages=$(grep -rl --include='*.go' '+k8s:openapi-gen=' pkg staging/src vendor/k8s.io |
    grep -Ev '_test\.go|/_examples/|code-generator|sample-|kube-openapi|zz_generated|/gengo/' | xargs -n1 dirname |
    sed -E 's,^staging/src/,vendor/,; s,^,k8s.io/kubernetes/,' | sort -u | paste -sd,)
  "$work/openapi-gen" -i "$packages" -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
    -h hack/boilerplate/boilerplate.generatego.txt -r /dev/null
fi
vendored=k8s.io/kubernetes/vendor/k8s.io
go build -p 2 -tags providerless -trimpath -o "$work/kube-apiserver" -ldflags \
  "-s -w -X $vendored/component-base/version.gitVersion=v1.20.2 -X $vendored/client-go/pkg/version.gitVersion=v1.20.2" \
  k8s.io/kubernetes/cmd/kube-apiserver
mv "$work/kube-apiserver" "$target/kube-apiserver"
chmod -R u+w "$work"
rm -rf "$work"
