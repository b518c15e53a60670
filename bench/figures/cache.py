#!/usr/bin/env python3
"""Cache misses per packet (the Scap paper's figure 7), simulated by cachegrind: a last level of 6 MB,
24 ways, as the paper's machine had. What the kernel does (copying a file's bytes) is not simulated: so that
it copies for each, Flowgauge reads a pipe rather than a mapped file.

usage: bench/figures/cache.py FLOWGAUGE NIDS_COUNT CAPTURE [CAPTURE ...]
"""

import json
import os
import re
import subprocess
import sys

import plot

CACHES = ["--I1=32768,8,64", "--D1=32768,8,64", "--LL=6291456,24,64"]


def misses(command, capture):
    """Instructions and last-level misses of a command."""
    valgrind = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=/dev/null"]
    with subprocess.Popen(["cat", capture], stdout=subprocess.PIPE) as cat:
        done = subprocess.run(
            [*valgrind, *CACHES, *command], stdin=cat.stdout, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        cat.stdout.close()
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")

    def figure(name):
        return int(re.search(name + r":\s+([\d,]+)", done.stderr)[1].replace(",", ""))

    return figure("I +refs"), figure("LL misses")


def packets(flowgauge, capture):
    """Packets in a capture."""
    counted = subprocess.run(
        [flowgauge, "report", "-q", "--json", "-r", capture], capture_output=True, text=True, check=True
    )
    return json.loads(counted.stdout)["ledger"]["received"]


def measure(flowgauge, nids_count, captures):
    """A table of instructions and misses per packet; without libnids when there is no `nids_count`."""
    rows = []
    for capture in captures:
        count = packets(flowgauge, capture)
        tools = [("flowgauge streams --count", [flowgauge, "streams", "-q", "--count", "--json", "-r", "-"])]
        if nids_count:
            tools.append(("libnids", [nids_count, capture]))
        for name, command in tools:
            instructions, missed = misses(command, capture)
            rows.append([os.path.basename(capture), name, f"{instructions / count:.0f}", f"{missed / count:.2f}"])
    return plot.table(["capture", "tool", "instructions per packet", "cache misses per packet"], rows)


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    print(measure(sys.argv[1], sys.argv[2], sys.argv[3:]))


if __name__ == "__main__":
    main()
