#!/bin/sh
# Installs the Debian packages that are missing. Usage: setup.sh build [test] [bench]
# Prints nothing where everything is there.
set -eu

packages=""
for group in "$@"; do
    case $group in
    build) packages="$packages gcc libc6-dev libpcap-dev libssl-dev libvectorscan5 make pkg-config procps" ;;
    test) packages="$packages tcpflow softflowd nfdump argus-server argus-client p0f ngrep libndpi4.2 libndpi-bin iproute2 tcpdump tshark snmpd snmp snmptrapd curl g++ clang valgrind libc6-dbg binutils make maven openjdk-17-jre-headless systemd" ;;
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

# The broker that tests run, as xtask/kafka/pom.xml names it.
case " $* " in
*" test "*)
    kafka="${FLOWGAUGE_CACHE:-$HOME/.cache/flowgauge}/kafka-4.3.1"
    pinned="$(cd "$(dirname "$0")" && pwd)/kafka"
    whole() { [ -d "$kafka" ] && (cd "$kafka" && sha256sum --check --status --strict "$pinned/sha256sums"); }
    if ! whole; then
        echo "fetching Kafka" >&2
        rm -rf "$kafka"
        log=$(mktemp)
        if ! mvn --quiet --batch-mode --file "$pinned/pom.xml" \
            org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
            -DoutputDirectory="$kafka" >"$log" 2>&1; then
            tail -n 20 "$log" >&2
            echo "setup.sh: Kafka cannot be fetched; the end of the log is above" >&2
            echo "hint: is Maven Central reachable, or a mirror set in ~/.m2/settings.xml?" >&2
            rm -f "$log"
            exit 1
        fi
        rm -f "$log"
        if ! whole; then
            rm -rf "$kafka"
            echo "setup.sh: what was fetched of Kafka is not what $pinned/sha256sums says" >&2
            exit 1
        fi
    fi
    ;;
esac

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
