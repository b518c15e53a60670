#!/usr/bin/env python3
"""What capturing costs with and without packets kept away in the kernel (docs/offload.md).

Usage: offload.py FLOWGAUGE [PACKETS [REPEATS]]   (as root)

Two ends of a virtual cable in a network namespace; frames of generated traces are sent on one, the program captures on the other.
What the kernel does for a packet it does in the sender's time: the cost is processor time of the program, and of the sender beyond
what it takes where nobody listens. Least of REPEATS, as a ratio to --offload none.
"""

import ctypes
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile

NAMESPACE = f"fg-offload-{os.getpid()}"
CASES = [
    ("match --cutoff 0", "elephants", ["match", "-q", "-e", "nothing of this", "--cutoff", "0", "--json"]),
    ("match --cutoff 10k", "elephants", ["match", "-q", "-e", "nothing of this", "--cutoff", "10k", "--json"]),
    ("log", "web", ["log", "-q", "--format", "json"]),
    ("log", "mix", ["log", "-q", "--format", "json"]),
    ("flows", "mix", ["flows", "-q", "--json"]),
    ("flows", "elephants", ["flows", "-q", "--json"]),
]
BACKENDS = {
    "none": ["--offload", "none"],
    "socket": ["--offload", "socket"],
    "xdp": ["--offload", "xdp", "--mirror"],
}


def run(*words):
    subprocess.run(words, check=True)


def frames(path):
    data = open(path, "rb").read()
    at, found = 24, []
    while at + 16 <= len(data):
        captured, = struct.unpack_from("<I", data, at + 8)
        found.append(data[at + 16 : at + 16 + captured])
        at += 16 + captured
    return found


def send(all_frames):
    """The processor time of a child in the namespace that sends them."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = os.fork()
    if child == 0:
        out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        out.bind(("fg0", 0))
        for frame in all_frames:
            out.send(frame)
        os._exit(0)
    os.waitpid(child, 0)
    return used(before)


def used(before):
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def programs():
    """Nanoseconds and runs of all socket filters and XDP programs, as the kernel counts them (kernel.bpf_stats_enabled)."""
    libc, number, total, runs = ctypes.CDLL(None, use_errno=True), 0, 0, 0
    while True:
        attributes = (ctypes.c_uint32 * 32)(number)
        if libc.syscall(321, 11, ctypes.byref(attributes), 128) != 0:
            return total, runs
        number = attributes[1]
        attributes = (ctypes.c_uint32 * 32)(number)
        fd = libc.syscall(321, 13, ctypes.byref(attributes), 128)
        if fd < 0:
            continue
        with open(f"/proc/self/fdinfo/{fd}") as lines:
            told = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        os.close(fd)
        if told.get("prog_type", "").strip() in ("1", "6"):
            total += int(told["run_time_ns"])
            runs += int(told["run_cnt"])


def measure(program, words, all_frames):
    """Processor time of sender and program, what the program said at its end, nanoseconds of the kernel's program per packet."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = subprocess.Popen(
        [program, *words, "-i", "fg1", "-B", "262144", "--stats"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    # It says nothing with -q: its socket tells when it captures.
    while True:
        with open("/proc/self/net/packet") as sockets:
            if len(sockets.readlines()) > 1:
                break
        if child.poll() is not None:
            sys.exit(child.communicate()[1])
    subprocess.run(["sleep", "0.5"], check=True)
    sender = send(all_frames)
    subprocess.run(["sleep", "0.5"], check=True)
    total, runs = programs()
    child.send_signal(signal.SIGINT)
    said = child.communicate()[1]
    return sender, used(before) - sender, said, total / max(runs, 1)


def main():
    program = os.path.abspath(sys.argv[1])
    packets = int(sys.argv[2]) if len(sys.argv) > 2 else 300_000
    repeats = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    run("ip", "netns", "add", NAMESPACE)
    counts = open("/proc/sys/kernel/bpf_stats_enabled").read()
    with open("/proc/sys/kernel/bpf_stats_enabled", "w") as file:
        file.write("1")
    try:
        run("ip", "-n", NAMESPACE, "link", "add", "fg0", "type", "veth", "peer", "name", "fg1")
        for end in ("fg0", "fg1"):
            run("ip", "-n", NAMESPACE, "link", "set", end, "mtu", "9000", "up")
        # All processes from here on are in it.
        with open(f"/run/netns/{NAMESPACE}") as name:
            if ctypes.CDLL(None, use_errno=True).setns(name.fileno(), 0x40000000) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        print("| command | trace | us per packet without | socket | ratio | of which the program takes, ns | xdp | ratio | ns |")
        print("|---|---|---|---|---|---|---|---|---|")
        with tempfile.TemporaryDirectory() as folder:
            for name, preset, words in CASES:
                path = os.path.join(folder, f"{preset}.pcap")
                if not os.path.exists(path):
                    run(program, "generate", "-q", "--preset", preset, "--packets", str(packets), "-w", path)
                sent = frames(path)
                alone = min(send(sent) for _ in range(repeats))
                costs, programs_took = {}, {}
                for backend in ("none", "socket", "xdp"):
                    runs, took = [], []
                    for _ in range(repeats):
                        sender, own, said, per_packet = measure(program, [*words, *BACKENDS[backend]], sent)
                        runs.append(max(sender - alone, 0) + own)
                        took.append(per_packet)
                    costs[backend] = min(runs) / len(sent) * 1e6
                    programs_took[backend] = min(took)
                line = f"| `{name}` | `{preset}` | {costs['none']:.2f} |"
                for backend in ("socket", "xdp"):
                    ratio = costs[backend] / costs["none"]
                    line += f" {costs[backend]:.2f} | {ratio:.2f} | {programs_took[backend]:.0f} |"
                print(line, flush=True)
                if os.environ.get("VERBOSE"):
                    print(said, file=sys.stderr)
    finally:
        with open("/proc/sys/kernel/bpf_stats_enabled", "w") as file:
            file.write(counts)
        run("ip", "netns", "del", NAMESPACE)


if __name__ == "__main__":
    main()
