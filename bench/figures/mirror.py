#!/usr/bin/env python3
"""What packets of a mirror port cost by AF_XDP, against a packet socket (docs/offload.md).

Usage: mirror.py FLOWGAUGE [PACKETS [ROUNDS [REPEATS]]]   (as root, on two idle cores)

A process on the first core sends a generated trace onto one end of a virtual cable, ROUNDS times, as fast as it can; the program captures at
the other end and runs on the second core. All is sent twice, and the second time counts. The kernel receives on the sender's core: its cost is
how long a packet takes that core, sending included. Least of REPEATS, each with all ways in turn.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from offload import NAMESPACE, cpu_of, inside, run

CASES = [
    ("flows --offload none", ["flows", "-q", "--json", "--offload", "none"]),
    ("flows", ["flows", "-q", "--json"]),
    ("match --cutoff 10k", ["match", "-q", "-e", "nothing of this", "--cutoff", "10k", "--json"]),
]
WAYS = {"packet socket": [], "AF_XDP": ["--mirror"]}


def busy():
    """Seconds that the first core has worked."""
    line = next(line for line in open("/proc/stat") if line.startswith("cpu0 "))
    user, nice, system, _idle, _wait, hard, soft, *_ = (int(word) for word in line.split()[1:])
    return (user + nice + system + hard + soft) / os.sysconf("SC_CLK_TCK")


def send(program, path, rounds):
    words = ["taskset", "-c", "0", program, "replay", "-q", "-r", path, "-i", "fg0", "--topspeed"]
    words += ["--loop", str(rounds), "--json"]
    sent = json.loads(subprocess.run(inside(*words), check=True, capture_output=True).stdout)
    return sent["packets"], sent["seconds"]


def measure(program, words, path, rounds):
    """Packets per second, nanoseconds of the first core and of the program per packet, and packets lost."""
    child = subprocess.Popen(
        inside("taskset", "-c", "1", program, *words, "-i", "fg1", "-B", "131072", "--stats"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(2)
    if child.poll() is not None:
        sys.exit(child.communicate()[1])
    send(program, path, rounds)
    time.sleep(0.5)
    begun, worked = cpu_of(child.pid), busy()
    packets, seconds = send(program, path, rounds)
    time.sleep(0.5)
    own, worked = cpu_of(child.pid) - begun, busy() - worked
    child.send_signal(signal.SIGINT)
    said = child.communicate()[1]
    ledger = next(line for line in said.splitlines() if " received, " in line)
    return packets / seconds, worked / packets * 1e9, own / packets * 1e9, ledger


def main():
    program = os.path.abspath(sys.argv[1])
    packets, rounds, repeats = (int(word) for word in (sys.argv[2:] + ["300000", "4", "3"][len(sys.argv) - 2 :]))
    run("ip", "netns", "add", NAMESPACE)
    try:
        run("ip", "-n", NAMESPACE, "link", "add", "fg0", "type", "veth", "peer", "name", "fg1")
        for end in ("fg0", "fg1"):
            run("ip", "-n", NAMESPACE, "link", "set", end, "up")
        print("| command | trace | way | packets per second | ns per packet: sender and kernel | program | ledger of the last run |")
        print("|---|---|---|---|---|---|---|")
        with tempfile.TemporaryDirectory() as folder:
            for preset in ("mix", "elephants"):
                path = os.path.join(folder, f"{preset}.pcap")
                run(program, "generate", "-q", "--preset", preset, "--packets", str(packets), "-w", path)
                for name, words in CASES:
                    results = {way: [] for way in WAYS}
                    for _ in range(repeats):
                        for way, options in WAYS.items():
                            results[way].append(measure(program, [*words, *options], path, rounds))
                    for way, all_of in results.items():
                        rates, kernels, owns, ledgers = zip(*all_of)
                        figures = f"{max(rates):.0f} | {min(kernels):.0f} | {min(owns):.0f}"
                        print(f"| `{name}` | `{preset}` | {way} | {figures} | {ledgers[-1]} |", flush=True)
    finally:
        run("ip", "netns", "del", NAMESPACE)


if __name__ == "__main__":
    main()
