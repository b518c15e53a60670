#!/usr/bin/env python3
"""What RMON's tables cost: counting against the libpcap loop, memory, variables a second of a walk over all of them,
straight at the subagent and through snmpd, a walk over what changed; and packets lost on an interface by their rate.

    cargo build --release -p flowgauge-cli && cargo build --release -p flowgauge-rmon --examples
    cc -O2 -o target/pcap_loop bench/peers/pcap_loop.c -lpcap
    bench/figures/rmon.py target/release/flowgauge target/release/examples target/pcap_loop [counting|walks|live] [PACKETS]

Prints tables. Needs root for the interface: one end of a virtual cable in a network namespace, which receives generated traces at a rate
(flowgauge replay --inbound), with the whole directory counted and a manager who walks alMatrix again and again. The program has a core,
the others have the next one, all at real-time priority: else a program that waits for its core while others have it loses what the ring does not hold. snmpd is one of its own on the loopback interface; it ends what it started.
"""
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time

PORT = 16161
REAL_TIME = ["chrt", "-f"]
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


def output(command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def cost(command):
    """A program's seconds of processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    output(command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def counting(program, counter, loop, folder):
    print("| counting | ns of a packet | times the libpcap loop | MB | first look at all orders, s |\n|---|---|---|---|---|")
    rows = re.compile(r"(\d+) packets, ([\d.]+) s.*\nfirst look ([\d.]+) s.* (\d+) MB")
    for preset in ["mix", "small"]:
        trace = os.path.join(folder, f"{preset}.pcap")
        subprocess.run([program, "generate", preset, "-q", "-w", trace], check=True)
        pairs = [(output([counter, trace]), cost([loop, trace])) for _ in range(5)]
        own = [rows.search(said).groups() for said, _ in pairs]
        (packets, _, look, memory), seconds = own[0], min(float(row[1]) for row in own)
        least = min(other for _, other in pairs)
        nanos = seconds / int(packets) * 1e9
        print(f"| `{preset}` | {nanos:.0f} | {seconds / least:.1f} | {memory} | {look} |")
        os.remove(trace)
    said = output([counter, "--hosts", "100000", "300000"])
    packets, seconds, look, memory = rows.search(said).groups()
    nanos = float(seconds) / int(packets) * 1e9
    print(f"| 100,000 hosts, 300,000 conversations of two packets | {nanos:.0f} | | {memory} | {look} |\n")
    print("A walk by time mark over alMatrixSD, of 300,000 conversations:", said.splitlines()[-1], end=".\n\n")


def live(program, folder):
    """Packets lost by rate (figure 7 of the paper: the whole directory; figure 8: diverse traffic)."""
    namespace = f"fg-rmon-{os.getpid()}"
    inside = ["ip", "netns", "exec", namespace]
    config, socket = os.path.join(folder, "live.conf"), os.path.join(folder, "live")
    with open(config, "w", encoding="utf-8") as file:
        file.write(f"agentaddress udp:127.0.0.1:{PORT}\nmaster agentx\nagentXSocket {socket}\nrocommunity public\n")
    environment = dict(os.environ, SNMP_PERSISTENT_DIR=os.path.join(folder, "live-state"), MIBS="")
    subprocess.run(["ip", "netns", "add", namespace], check=True)
    snmpd = None
    try:
        # Nothing but what is sent.
        subprocess.run([*inside, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1"], check=True)
        network = ["ip", "-n", namespace, "link"]
        subprocess.run([*network, "add", "fg0", "type", "veth", "peer", "name", "fg1"], check=True)
        for end_of in ["lo", "fg0", "fg1"]:
            subprocess.run([*network, "set", end_of, "up"], check=True)
        log = open(os.path.join(folder, "live-log"), "w", encoding="utf-8")
        snmpd = subprocess.Popen([*inside, *REAL_TIME, "9", "snmpd", "-f", "-Lo", "-C", "-c", config], env=environment, stdout=log, stderr=log)
        print("| trace | packets/s | sent | counted | lost | the program's time | walked |\n|---|---|---|---|---|---|---|")
        for preset in ["mix", "zoo", "small"]:
            trace = os.path.join(folder, f"{preset}-live.pcap")
            subprocess.run([program, "generate", preset, "-q", "--packets", "300000", "-w", trace], check=True)
            for rate in [58_900, 300_000, 589_000, None]:
                row = at_rate(program, inside, environment, socket, trace, rate, os.path.join(folder, "live-said"))
                print(f"| `{preset}` | {row} |", flush=True)
    finally:
        if snmpd:
            end(snmpd)
        subprocess.run(["ip", "netns", "del", namespace], check=True)


def at_rate(program, inside, environment, socket, trace, rate, said):
    """A trace sent twice at a rate, and what came of it."""
    command = [*inside, *REAL_TIME, "10", "taskset", "-c", "1", program, "rmon", "--agentx", socket, "-i", "fg1"]
    process = subprocess.Popen(command, stderr=open(said, "w", encoding="utf-8"))
    while "registered with" not in open(said, encoding="utf-8").read():
        if process.poll() is not None:
            sys.exit(open(said, encoding="utf-8").read())
        time.sleep(0.05)
    walk = ["snmpbulkwalk", "-v2c", "-c", "public", "-On", "-Cr50", "-t", "30", f"127.0.0.1:{PORT}", f"{ROOT}.17"]
    again = ["sh", "-c", 'while "$@"; do :; done', "walks", *walk]
    walked = open(f"{said}-walked", "w+", encoding="utf-8")
    manager = subprocess.Popen([*inside, *REAL_TIME, "9", "taskset", "-c", "0", *again], env=environment, stdout=walked, stderr=subprocess.DEVNULL)
    pace = ["--pps", str(rate)] if rate else ["--topspeed"]
    replay = [*inside, *REAL_TIME, "10", "taskset", "-c", "0", program, "replay", "-r", trace, "-i", "fg1", "--inbound", *pace]
    before = cpu(process)
    sent = subprocess.run([*replay, "--loop", "2", "--same-addresses", "--json", "-q"], check=True, capture_output=True, text=True)
    sent = json.loads(sent.stdout)
    used = (cpu(process) - before) / sent["seconds"]
    time.sleep(0.5)
    end(manager)
    end(process)
    received, dropped = counts(open(said, encoding="utf-8").read())
    lost = 100 * (sent["packets"] - (received - dropped)) / sent["packets"]
    achieved = sent["packets"] / sent["seconds"]
    variables = open(walked.name, encoding="utf-8").read().count("\n")
    return f"{achieved:,.0f} | {sent['packets']:,} | {received - dropped:,} | {lost:.2f} % | {100 * used:.0f} % | {variables:,}"


def counts(said):
    """Packets received and dropped, as the program says at its end."""
    return tuple(int(re.search(rf"(\d+) {word}", said)[1]) for word in ["packets received", "dropped"])


def walks(program, examples, folder, packets):
    walker = os.path.join(examples, "walk")
    trace = os.path.join(folder, "mix.pcap")
    subprocess.run([program, "generate", "mix", "-q", "--packets", packets, "-w", trace], check=True)
    print("| walk | variables | variables/s | µs of the subagent per variable |\n|---|---|---|---|")
    for repetitions, name in [(100, "GetBulk of 100, a master of ours"), (1, "one at a time, a master of ours")]:
        variables, seconds, used = straight(program, walker, folder, trace, repetitions)
        print(f"| {name} | {variables:,} | {variables / seconds:,.0f} | {used / variables * 1e6:.1f} |")
    variables, seconds, used = through_snmpd(program, folder, trace)
    name = f"`snmpbulkwalk` through snmpd, which took {used[1] / variables * 1e6:.1f} µs itself"
    print(f"| {name} | {variables:,} | {variables / seconds:,.0f} | {used[0] / variables * 1e6:.1f} |\n")


def main():
    program, examples, loop = (os.path.abspath(path) for path in sys.argv[1:4])
    wanted = [word for word in sys.argv[4:] if not word.isdigit()]
    packets = ([word for word in sys.argv[4:] if word.isdigit()] or ["200000"])[0]
    with tempfile.TemporaryDirectory() as folder:
        if not wanted or "counting" in wanted:
            counting(program, os.path.join(examples, "count"), loop, folder)
        if not wanted or "walks" in wanted:
            walks(program, examples, folder, packets)
        if not wanted or "live" in wanted:
            live(program, folder)


if __name__ == "__main__":
    main()
