#!/bin/sh
# Runs a program that captures on eth0, in the network namespace of this shell, sends datagrams past it, and interrupts
# it. Usage: interrupt.sh PROGRAM
set -eu

ip link add eth0 type veth peer name peer0
ip address add 198.51.100.1/24 dev eth0
ip link set eth0 up
ip link set peer0 up
ip neighbour add 198.51.100.2 lladdr 02:00:00:00:00:02 dev eth0

"$1" eth0 &
program=$!
until awk 'NR > 1 && $6 == 1 { found = 1 } END { exit !found }' /proc/net/packet; do
    kill -0 "$program"
done
# Many: the filter that lets them in may come a moment after that.
bash -c 'for number in {1..5000}; do echo hello >/dev/udp/198.51.100.2/9999; done'
# SIGINT is ignored in what a shell without job control puts in the background; the program sets its own handler.
# Twice, as who is impatient does.
kill -INT "$program"
kill -INT "$program" 2>/dev/null || true
wait "$program"
