#!/usr/bin/env python3
"""What capturing costs with and without packets kept away in the kernel (docs/offload.md).

Usage: offload.py FLOWGAUGE [PACKETS [ROUNDS [REPEATS]]]   (as root, on two idle cores)

One end of a virtual cable in a network namespace receives the frames of a generated trace, ROUNDS times with hosts of their own, as
fast as a process on the first core hands them over (flowgauge replay --inbound --topspeed); the program captures there and runs on the second. All is sent
twice, and the second time counts, when memory is warm. What the kernel does for a packet it does in the sender's time: the cost is processor
time of the program, and of the sender beyond what it takes where the capture's filter takes nothing. (At a rate the sender would wait in its own time.)
Least of REPEATS, each with all ways in turn.
"""

import glob
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time

NAMESPACE = f"fg-offload-{os.getpid()}"
CASES = [
    ("match --cutoff 0", "elephants", ["match", "-q", "-e", "nothing of this", "--cutoff", "0", "--json"]),
    ("match --cutoff 10k", "elephants", ["match", "-q", "-e", "nothing of this", "--cutoff", "10k", "--json"]),
    ("match --cutoff 10k", "mix", ["match", "-q", "-e", "nothing of this", "--cutoff", "10k", "--json"]),
    ("log", "web", ["log", "-q", "--format", "json"]),
    ("log", "mix", ["log", "-q", "--format", "json"]),
    ("flows", "mix", ["flows", "-q", "--json"]),
    ("flows", "elephants", ["flows", "-q", "--json"]),
]
NOTHING = ["flows", "-q", "ether proto 0x9999"]


def run(*words):
    subprocess.run(words, check=True)


def inside(*words):
    return ["ip", "netns", "exec", NAMESPACE, *words]


def cpu_of(pid):
    """Processor time of all threads of a process until now."""
    return sum(int(open(path).read().split()[0]) for path in glob.glob(f"/proc/{pid}/task/*/schedstat")) / 1e9


def send(program, path, rounds):
    """The processor time of a process that hands the frames to the interface, and how many."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    replay = ["taskset", "-c", "0", program, "replay", "-r", path, "-i", "fg1", "--inbound", "--topspeed"]
    replay += ["--loop", str(rounds), "--json"]
    sent = json.loads(subprocess.run(inside(*replay, "-q"), check=True, capture_output=True).stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, sent["packets"]


def measure(program, words, path, rounds):
    """Processor time of sender and program, in nanoseconds per packet, and what the program said at its end."""
    child = subprocess.Popen(
        inside("taskset", "-c", "1", program, *words, "-i", "fg1", "-B", "262144", "--stats"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    # It says nothing with -q: its socket tells when it captures.
    while len(subprocess.check_output(inside("cat", "/proc/net/packet")).splitlines()) < 2:
        if child.poll() is not None:
            sys.exit(child.communicate()[1])
    time.sleep(1)
    send(program, path, rounds)
    time.sleep(0.5)
    begun = cpu_of(child.pid)
    sender, packets = send(program, path, rounds)
    time.sleep(0.5)
    own = cpu_of(child.pid) - begun
    child.send_signal(signal.SIGINT)
    return sender / packets * 1e9, own / packets * 1e9, child.communicate()[1]


def main():
    program = os.path.abspath(sys.argv[1])
    packets, rounds, repeats = (int(word) for word in (sys.argv[2:] + ["300000", "4", "5"][len(sys.argv) - 2 :]))
    run("ip", "netns", "add", NAMESPACE)
    try:
        run("ip", "-n", NAMESPACE, "link", "add", "fg0", "type", "veth", "peer", "name", "fg1")
        for end in ("fg0", "fg1"):
            run("ip", "-n", NAMESPACE, "link", "set", end, "up")
        print("| command | trace | ns per packet: kernel, program | with packets kept away | ratio |")
        print("|---|---|---|---|---|")
        with tempfile.TemporaryDirectory() as folder:
            for name, preset, words in CASES:
                path = os.path.join(folder, f"{preset}.pcap")
                if not os.path.exists(path):
                    run(program, "generate", "-q", "--preset", preset, "--packets", str(packets), "-w", path)
                ways = {
                    "nothing": NOTHING,
                    "none": [*words, "--offload", "none"],
                    "auto": words,
                }
                senders, owns = ({way: [] for way in ways} for _ in range(2))
                for _ in range(repeats):
                    for way, line in ways.items():
                        sender, own, said = measure(program, line, path, rounds)
                        senders[way].append(sender)
                        owns[way].append(own)
                        if os.environ.get("VERBOSE"):
                            print(way, f"{sender:.0f} {own:.0f}", said, file=sys.stderr)
                kernel, user = ({way: min(took) for way, took in of.items()} for of in (senders, owns))
                cost = {way: (kernel[way] - kernel["nothing"], user[way]) for way in ways}
                none, auto = (f"{cost[way][0]:.0f} + {cost[way][1]:.0f}" for way in ("none", "auto"))
                ratio = sum(cost["auto"]) / sum(cost["none"])
                print(f"| `{name}` | `{preset}` | {none} | {auto} | {ratio:.2f} |", flush=True)
    finally:
        run("ip", "netns", "del", NAMESPACE)


if __name__ == "__main__":
    main()
