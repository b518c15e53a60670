#!/usr/bin/env bash
# Installs the peers of the benchmark (Debian packages; needs root or sudo) and builds the small
# programs around libpcap, libnids, Vectorscan and the crate flowscope.
# usage: bench/setup.sh [--no-install]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${FLOWGAUGE_CACHE:-$HOME/.cache/flowgauge}/bench
packages=(gcc libpcap-dev libnids-dev libvectorscan-dev tcpflow softflowd nfdump argus-server argus-client tshark wireshark-common)

if [ "${1:-}" != "--no-install" ]; then
  missing=()
  for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
    $sudo apt-get update -q
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -q --no-install-recommends "${missing[@]}"
  fi
fi

mkdir -p "$out"
gcc -O2 -Wall -o "$out/measure" "$here/peers/measure.c"
gcc -O2 -Wall -o "$out/pcap_loop" "$here/peers/pcap_loop.c" -lpcap
gcc -O2 -Wall -o "$out/pcap_filters" "$here/peers/pcap_filters.c" -lpcap
gcc -O2 -Wall -o "$out/nids_count" "$here/peers/nids_count.c" -lnids -lpcap
gcc -O2 -Wall -o "$out/nids_match" "$here/peers/nids_match.c" -lnids -lpcap -lhs
CARGO_TARGET_DIR="$out/flowscope-build" cargo build --release --quiet --locked --manifest-path "$here/peers/flowscope/Cargo.toml"
cp "$out/flowscope-build/release/flowscope-peer" "$out/flowscope-peer"
echo "peers are in $out"
