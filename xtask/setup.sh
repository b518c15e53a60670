#!/bin/sh
# Installs the Debian packages that are missing. Usage: setup.sh build [test] [bench]
# Prints nothing where everything is there.
set -eu

packages=""
for group in "$@"; do
    case $group in
    build) packages="$packages gcc libc6-dev libpcap-dev libvectorscan5 pkg-config procps" ;;
    test) packages="$packages libndpi4.2 libndpi-bin iproute2 tcpdump tshark curl g++ clang valgrind libc6-dbg binutils make systemd" ;;
    bench) packages="$packages libnids-dev libvectorscan-dev tcpflow softflowd nfdump argus-server tshark python3" ;;
    *)
        echo "setup.sh: unknown group '$group' (build, test, bench)" >&2
        exit 2
        ;;
    esac
done

missing=""
if command -v dpkg-query >/dev/null 2>&1; then
    for package in $packages; do
        status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
        [ "$status" = installed ] || missing="$missing $package"
    done
fi

if [ -n "$missing" ]; then
    echo "installing$missing" >&2
    run=""
    if [ "$(id -u)" != 0 ]; then
        if ! command -v sudo >/dev/null 2>&1; then
            echo "setup.sh: missing packages:$missing" >&2
            echo "hint: install them as root: apt-get install$missing" >&2
            exit 1
        fi
        run="sudo"
    fi
    log=$(mktemp)
    # Wireshark's package asks a question; no service may be started.
    if ! { $run apt-get update -qq &&
        $run env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing; } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        echo "setup.sh: installation failed; the end of its log is above" >&2
        echo "hint: run 'apt-get update' and look at /etc/apt/sources.list" >&2
        rm -f "$log"
        exit 1
    fi
    rm -f "$log"
fi

if ! command -v "${CARGO:-cargo}" >/dev/null 2>&1; then
    if [ -x "$HOME/.cargo/bin/cargo" ]; then
        echo "setup.sh: cargo is in $HOME/.cargo/bin but not on PATH" >&2
        echo "hint: . \"\$HOME/.cargo/env\"" >&2
    else
        echo "setup.sh: cargo (Rust 1.95 or newer) is not installed" >&2
        echo "hint: install it with rustup, https://rustup.rs" >&2
    fi
    exit 1
fi
