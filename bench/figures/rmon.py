#!/usr/bin/env python3
"""What RMON's tables cost: counting against the libpcap loop, memory, and variables a second of a walk over all of them,
straight at the subagent and through snmpd.

    cargo build --release -p flowgauge-cli && cargo build --release -p flowgauge-rmon --examples
    cc -O2 -o target/pcap_loop bench/peers/pcap_loop.c -lpcap
    bench/figures/rmon.py target/release/flowgauge target/release/examples target/pcap_loop [PACKETS]

Prints tables. snmpd is one of its own on the loopback interface; it ends what it started.
"""
import os
import re
import resource
import subprocess
import sys
import tempfile
import time

PORT = 16161
ROOT = ".1.3.6.1.2.1.16"


def subagent(program, socket, trace, said):
    """The tables of a trace, once they are registered and complete."""
    command = [program, "rmon", "--agentx", socket, "-r", trace]
    process = subprocess.Popen(command, stderr=open(said, "w", encoding="utf-8"))
    wanted = ("registered with", "the tables stay")
    while not all(text in open(said, encoding="utf-8").read() for text in wanted):
        if process.poll() is not None:
            sys.exit(open(said, encoding="utf-8").read())
        time.sleep(0.05)
    return process


def end(process):
    process.terminate()
    process.wait()


def cpu(process):
    """Seconds of processor time so far."""
    fields = open(f"/proc/{process.pid}/stat", encoding="utf-8").read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def straight(program, walker, folder, trace, repetitions):
    socket = os.path.join(folder, f"own-{repetitions}")
    master = subprocess.Popen(
        [walker, socket, str(repetitions)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    while not os.path.exists(socket):
        time.sleep(0.01)
    process = subagent(program, socket, trace, os.path.join(folder, "said"))
    before = cpu(process)
    best = None
    rounds = 3
    for _ in range(rounds):
        master.stdin.write("\n")
        master.stdin.flush()
        variables, seconds = master.stdout.readline().split(" variables, ")
        seconds = float(seconds.split(" s,")[0])
        best = min(best or seconds, seconds)
    used = (cpu(process) - before) / rounds
    end(process)
    master.stdin.close()
    master.wait()
    return int(variables), best, used


def through_snmpd(program, folder, trace):
    socket = os.path.join(folder, "master")
    config = os.path.join(folder, "snmpd.conf")
    with open(config, "w", encoding="utf-8") as file:
        file.write(f"agentaddress udp:127.0.0.1:{PORT}\nmaster agentx\nagentXSocket {socket}\nrocommunity public\n")
    environment = dict(os.environ, SNMP_PERSISTENT_DIR=os.path.join(folder, "state"), MIBS="")
    log = open(os.path.join(folder, "log"), "w", encoding="utf-8")
    snmpd = subprocess.Popen(["snmpd", "-f", "-Lo", "-C", "-c", config], env=environment, stdout=log, stderr=log)
    process = subagent(program, socket, trace, os.path.join(folder, "said"))
    before = cpu(process), cpu(snmpd)
    began = time.monotonic()
    walk = ["snmpbulkwalk", "-v2c", "-c", "public", "-On", "-Cr100", "-t", "30", f"127.0.0.1:{PORT}", ROOT]
    lines = subprocess.run(walk, env=environment, check=True, capture_output=True).stdout.count(b"\n.1.3.6.1")
    seconds = time.monotonic() - began
    used = cpu(process) - before[0], cpu(snmpd) - before[1]
    end(process)
    end(snmpd)
    return lines + 1, seconds, used


def cost(command):
    """What a program prints, and its seconds of processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return said, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def counting(program, counter, loop, folder):
    print("| counting | ns of a packet | times the libpcap loop | MB | first look at all orders, s |\n|---|---|---|---|---|")
    rows = re.compile(r"(\d+) packets.*\nfirst look ([\d.]+) s.* (\d+) MB")
    for preset in ["mix", "small"]:
        trace = os.path.join(folder, f"{preset}.pcap")
        subprocess.run([program, "generate", preset, "-q", "-w", trace], check=True)
        pairs = [(cost([counter, trace]), cost([loop, trace])[1]) for _ in range(5)]
        (said, seconds), least = min(own for own, _ in pairs), min(other for _, other in pairs)
        packets, look, memory = rows.search(said).groups()
        nanos = seconds / int(packets) * 1e9
        print(f"| `{preset}` | {nanos:.0f} | {seconds / least:.1f} | {memory} | {look} |")
        os.remove(trace)
    said, seconds = cost([counter, "--hosts", "100000", "300000"])
    packets, look, memory = rows.search(said).groups()
    nanos = seconds / int(packets) * 1e9
    print(f"| 100,000 hosts, 300,000 conversations of two packets | {nanos:.0f} | | {memory} | {look} |\n")


def main():
    program, examples, loop = (os.path.abspath(path) for path in sys.argv[1:4])
    walker = os.path.join(examples, "walk")
    packets = sys.argv[4] if len(sys.argv) > 4 else "200000"
    with tempfile.TemporaryDirectory() as folder:
        counting(program, os.path.join(examples, "count"), loop, folder)
        trace = os.path.join(folder, "mix.pcap")
        subprocess.run([program, "generate", "mix", "-q", "--packets", packets, "-w", trace], check=True)
        print("| walk | variables | variables/s | µs of the subagent per variable |\n|---|---|---|---|")
        for repetitions, name in [(100, "GetBulk of 100, a master of ours"), (1, "one at a time, a master of ours")]:
            variables, seconds, used = straight(program, walker, folder, trace, repetitions)
            print(f"| {name} | {variables:,} | {variables / seconds:,.0f} | {used / variables * 1e6:.1f} |")
        variables, seconds, used = through_snmpd(program, folder, trace)
        name = f"`snmpbulkwalk` through snmpd, which took {used[1] / variables * 1e6:.1f} µs itself"
        print(f"| {name} | {variables:,} | {variables / seconds:,.0f} | {used[0] / variables * 1e6:.1f} |")


if __name__ == "__main__":
    main()
