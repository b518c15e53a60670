#!/usr/bin/env python3
"""What capturing costs: all packets copied, kept away in the kernel, by AF_XDP (docs/offload.md).

Usage: offload.py FLOWGAUGE [inbound|mirror [PACKETS [REPEATS [REGEX]]]]   (as root, on two idle cores, with perf)

One end of a virtual cable in a network namespace receives the frames of a generated trace whose flows begin within two seconds, in
their own time, from a process on the first core (inbound: flowgauge replay --inbound, by the receiving driver; mirror: sent by the other end); the
program captures there and runs on the second. All is sent twice, and the second time counts, when memory is warm. What the kernel does for
a packet it does on the sender's core: perf looks every 50 microseconds what that does, and what counts is the time within the packet
socket (inbound), or within all of the receiving (mirror). The program's part is its processor time. Median of REPEATS, each with all ways in turn;
REGEX chooses among the cases.
"""

import glob
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

NAMESPACE = f"fg-offload-{os.getpid()}"
FLOWS = ["flows", "--json"]
LOG = ["log", "--format", "json"]
MATCH = ["match", "-e", "nothing of this", "--json", "--cutoff"]
CASES = [
    ("match --cutoff 0", "elephants", [*MATCH, "0"]),
    ("match --cutoff 10k", "elephants", [*MATCH, "10k"]),
    ("match --cutoff 10k", "mix", [*MATCH, "10k"]),
    ("log", "web", LOG),
    ("log", "mix", LOG),
    ("flows", "mix", FLOWS),
    ("flows", "elephants", FLOWS),
]
SOCKET = {"all copied": ["--offload", "none"], "kept away": []}
# How frames arrive, the kernel's function within which they cost, and the ways to capture them.
MODES = {
    "inbound": (["-i", "fg1", "--inbound"], "tpacket_rcv", SOCKET),
    "mirror": (["-i", "fg0"], "net_rx_action", SOCKET | {"AF_XDP": ["--mirror"]}),
}
PERIOD = 50_000  # nanoseconds between two looks


def run(*words):
    subprocess.run(words, check=True)


def inside(*words):
    return ["ip", "netns", "exec", NAMESPACE, *words]


def cpu_of(pid):
    """Processor time of all threads of a process until now, in seconds."""
    return sum(int(open(path).read().split()[0]) for path in glob.glob(f"/proc/{pid}/task/*/schedstat")) / 1e9


def send(program, path, arrive):
    words = ["taskset", "-c", "0", program, "replay", "-q", "-r", path, *arrive, "--json"]
    return inside(*words)


def within(samples, function):
    """Nanoseconds during which the first core was within a function of the kernel."""
    text = subprocess.check_output(["perf", "script", "-i", samples, "-F", "ip,sym"], text=True, stderr=subprocess.DEVNULL)
    return PERIOD * sum(function in chain.split() for chain in text.split("\n\n"))


def measure(program, words, path, arrive, function):
    """Nanoseconds of kernel and program per packet, and what the program said of packets at its end."""
    child = subprocess.Popen(
        inside("taskset", "-c", "1", program, *words, "-i", "fg1", "-B", "262144", "--stats"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(2)
    if child.poll() is not None:
        sys.exit(child.communicate()[1])
    line = send(program, path, arrive)
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    samples = f"{path}.perf"
    perf = ["perf", "record", "-e", "cpu-clock", "-c", str(PERIOD), "-C", "0", "-g", "-o", samples, "--"]
    begun = cpu_of(child.pid)
    sent = json.loads(subprocess.run([*perf, *line], check=True, stdout=subprocess.PIPE).stdout)
    time.sleep(0.5)
    own = cpu_of(child.pid) - begun
    child.send_signal(signal.SIGINT)
    said = child.communicate()[1]
    if os.environ.get("VERBOSE"):
        print(words, sent, said, file=sys.stderr)
    told = [line for line in said.splitlines() if re.search(" received, |in the kernel", line)]
    return within(samples, function) / sent["packets"], own * 1e9 / sent["packets"], "; ".join(told)


def main():
    program = os.path.abspath(sys.argv[1])
    mode, packets, repeats, regex = sys.argv[2:] + ["inbound", "1500000", "3", ""][len(sys.argv) - 2 :]
    arrive, function, ways = MODES[mode]
    run("ip", "netns", "add", NAMESPACE)
    try:
        run("ip", "-n", NAMESPACE, "link", "add", "fg0", "type", "veth", "peer", "name", "fg1")
        for end in ("fg0", "fg1"):
            run("ip", "-n", NAMESPACE, "link", "set", end, "up")
        print("| command | trace | capture | ns per packet: kernel | program | ratio | the last run's packets |")
        print("|---|---|---|---|---|---|---|")
        with tempfile.TemporaryDirectory() as folder:
            for name, preset, words in CASES:
                if not re.search(regex, f"{name} {preset}"):
                    continue
                path = os.path.join(folder, f"{preset}.pcap")
                if not os.path.exists(path):
                    run(program, "generate", "--preset", preset, "--packets", packets, "--duration", "2s", "-w", path)
                costs = {way: [] for way in ways}
                for _ in range(int(repeats)):
                    for way, options in ways.items():
                        costs[way].append(measure(program, [*words, *options], path, arrive, function))
                whole = None
                for way, of in costs.items():
                    kernel, own = (statistics.median(cost[part] for cost in of) for part in (0, 1))
                    whole = whole or kernel + own
                    figures = f"{kernel:.0f} | {own:.0f} | {(kernel + own) / whole:.2f}"
                    print(f"| `{name}` | `{preset}` | {way} | {figures} | {of[-1][2]} |", flush=True)
    finally:
        run("ip", "netns", "del", NAMESPACE)


if __name__ == "__main__":
    main()
