#!/usr/bin/env python3
"""What `flowgauge loss` says of a link that loses packets, against what the link itself counted by flow.

    cargo build --release -p flowgauge-cli
    sudo bench/figures/loss.py target/release/flowgauge [FLOWS [RATE]]

A link of two virtual cables in a network namespace of its own; between them an eBPF program drops packets at random and counts
(loss_dropper.c, the only source of truth). Both ends are captured into files, of which one gets another clock, and watched by two
sensors with their agents, and by two stacks whose records go over links. Needs clang, tc with libbpf, and root. With a RATE only that one is tried, as tests/live.rs does. Exits with 1 where
what is said differs from the truth, and with 77 where there is no such link.
"""
import collections
import ctypes
import ipaddress
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

SHIFT = 3_700_000_000
HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    program = os.path.abspath(sys.argv[1])
    flows = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    rates = [float(rate) for rate in sys.argv[3:]] or [0.001, 0.01, 0.05]
    if "FLOWGAUGE_INSIDE" not in os.environ:
        os.environ["FLOWGAUGE_INSIDE"] = "1"
        words = ["unshare", "-n", "-m", sys.executable, *sys.argv]
        sys.exit(subprocess.run(words).returncode)
    with tempfile.TemporaryDirectory() as folder:
        try:
            link = Link(folder)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"no link that drops can be made: {error}", file=sys.stderr)
            sys.exit(77)
        keys(program, folder)
        good = True
        for rate in rates:
            good &= files(program, folder, link, rate, flows)
            good &= sensors(program, folder, link, rate, flows, False)
        good &= stacks(program, folder, link, rates[-1], flows)
        if len(sys.argv) <= 3:
            good &= sensors(program, folder, link, 0.01, flows, True)
        sys.exit(0 if good else 1)


class Link:
    """Two cables, fg0-fg1 and fg2-fg3, and what hands packets over between fg1 and fg2."""

    def __init__(self, folder):
        run("mount -t bpf bpf /sys/fs/bpf")
        run("ip link set lo up")
        for first, second in (("fg0", "fg1"), ("fg2", "fg3")):
            run(f"ip link add {first} type veth peer name {second}")
            for device in (first, second):
                with open(f"/proc/sys/net/ipv6/conf/{device}/disable_ipv6", "w", encoding="ascii") as file:
                    file.write("1")
                run(f"ip link set {device} up")
        for device, other in (("fg1", "fg2"), ("fg2", "fg1")):
            run(f"clang -O2 -g -target bpf -I/usr/include/{os.uname().machine}-linux-gnu -DTO={socket.if_nametoindex(other)} "
                f"-c {HERE}/loss_dropper.c -o {folder}/{device}.o")
            run(f"tc qdisc add dev {device} clsact")
            run(f"tc filter add dev {device} ingress bpf direct-action object-file {folder}/{device}.o section tc")
        self.counts, self.limit = (Map(name) for name in ("fg_counts", "fg_limit"))

    def begin(self, rate):
        """Counts from now on, and drops at this rate."""
        for key in list(self.counts.keys(12)):
            self.counts.delete(key)
        self.limit.update(bytes(4), struct.pack("=I", int(rate * 2**32)))

    def truth(self):
        """By source, its port, destination, its port: packets sent, packets dropped."""
        found = {}
        for key in self.counts.keys(12):
            source, destination, ports = key[:4], key[4:8], struct.unpack(">HH", key[8:])
            passed, dropped = struct.unpack("=QQ", self.counts.lookup(key, 16))
            way = (str(ipaddress.IPv4Address(source)), ports[0], str(ipaddress.IPv4Address(destination)), ports[1])
            found[way] = (passed + dropped, dropped)
        return found


class Map:
    """A pinned map, by the system call bpf(2)."""

    NUMBER = {"x86_64": 321, "aarch64": 280}[os.uname().machine]

    def __init__(self, name):
        path = f"/sys/fs/bpf/tc/globals/{name}"
        self.path = ctypes.create_string_buffer(path.encode())
        self.fd = Map.call(7, struct.pack("=QII", ctypes.addressof(self.path), 0, 0))
        if self.fd < 0:
            sys.exit(f"{path}: cannot be opened")

    @staticmethod
    def call(command, attributes):
        memory = ctypes.create_string_buffer(attributes, 128)
        return ctypes.CDLL(None, use_errno=True).syscall(Map.NUMBER, command, memory, 128)

    def element(self, command, key, value):
        first = ctypes.create_string_buffer(key, len(key)) if key is not None else None
        attributes = struct.pack("=IIQQQ", self.fd, 0, ctypes.addressof(first) if first else 0, ctypes.addressof(value) if value else 0, 0)
        return Map.call(command, attributes)

    def lookup(self, key, size):
        value = ctypes.create_string_buffer(size)
        self.element(1, key, value)
        return value.raw

    def update(self, key, value):
        self.element(2, key, ctypes.create_string_buffer(value, len(value)))

    def delete(self, key):
        self.element(3, key, None)

    def keys(self, size):
        key, following = None, ctypes.create_string_buffer(size)
        while self.element(4, key, following) == 0:
            key = following.raw
            yield key


def send(flows):
    """Packets of so many flows both ways, as fast as the link takes them."""
    draw = random.Random(flows)
    frames = []
    for flow in range(flows):
        client, server = (f"10.{flow >> 16 & 255}.{flow >> 8 & 255}.{flow & 255}", 40_000), (f"198.18.0.{flow % 7}", (53, 443, 8080)[flow % 3])
        for _ in range(draw.randrange(1, 25)):
            way = draw.randrange(2)
            frames.append((way, frame(*((server, client) if way else (client, server)), len(frames))))
    draw.shuffle(frames)
    ends = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW) for _ in range(2)]
    for end, device in zip(ends, ("fg0", "fg3")):
        end.bind((device, 0))
    for at, (way, data) in enumerate(frames):
        ends[way].send(data)
        if at % 64 == 0:
            time.sleep(0.0005)
    return len(frames)


def frame(source, destination, number):
    payload = struct.pack(">QQ", number, number * 0x9E3779B97F4A7C15 & 2**64 - 1)
    udp = struct.pack(">HHHH", source[1], destination[1], 8 + len(payload), 0) + payload
    addresses = socket.inet_aton(source[0]) + socket.inet_aton(destination[0])
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), number & 65535, 0x4000, 64, 17, 0) + addresses
    words = sum(struct.unpack(">10H", head))
    words = (words & 65535) + (words >> 16)
    words = ~((words & 65535) + (words >> 16)) & 65535
    return b"\2\0\0\0\0\1\2\0\0\0\0\2\x08\0" + head[:10] + struct.pack(">H", words) + head[12:] + udp


def files(program, folder, link, rate, flows):
    """Captures at both ends; the second one's clock is shifted."""
    link.begin(rate)
    captures = []
    for device in ("fg1", "fg3"):
        # Filled at leisure, as nothing of the captures may be lost here.
        words = ["capture", "-i", device, "-B", "262144", "-Z", "root", "-w", f"{folder}/{device}.pcap", "ip"]
        start(captures, [program, *words], "listening")
    before = backlog_drops()
    sent = send(flows)
    time.sleep(1)
    for capture in captures:
        capture.send_signal(signal.SIGINT)
        said = capture.communicate()[1]
        if " 0 dropped" not in said:
            sys.exit(f"the capture itself lost packets: {said}")
    shift(f"{folder}/fg3.pcap")
    words = [program, "loss", "-q", "--json", "--flows", "-r", f"{folder}/fg1.pcap", f"{folder}/fg3.pcap"]
    began = time.monotonic()
    out = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    seconds = time.monotonic() - began
    rows = [json.loads(line) for line in out.splitlines()]
    return report(f"files, {rate:.1%}", rows, link.truth(), sent, backlog_drops() - before, f"{seconds:.2f} s")


def shift(path):
    """Another clock for a file of nanoseconds."""
    with open(path, "rb") as file:
        data = bytearray(file.read())
    at = 24
    while at < len(data):
        seconds, nanos, length = struct.unpack_from("=III", data, at)
        now = seconds * 10**9 + nanos + SHIFT
        struct.pack_into("=II", data, at, now // 10**9, now % 10**9)
        at += 16 + length
    with open(path, "wb") as file:
        file.write(data)


def keys(program, folder):
    for words in (["authority"], ["add", "user"], ["add", "hub", "--host", "127.0.0.1"], ["add", "s1", "--host", "127.0.1.1"], ["add", "s2", "--host", "127.0.1.2"]):
        subprocess.run([program, "keys", *words, "--keys", f"{folder}/keys"], check=True, capture_output=True)


def sensors(program, folder, link, rate, flows, drops):
    """Two sensors; with `drops` one is stopped again and again, so that its ring overflows."""
    link.begin(rate)
    processes = []
    try:
        watched = []
        for number, device in ((1, "fg1"), (2, "fg3")):
            host, path = f"127.0.1.{number}", f"{folder}/{number}"
            buffer = 1 << 18 if drops and number == 2 else 256 << 20
            with open(f"{path}.toml", "w", encoding="utf-8") as file:
                file.write(f'socket = "{path}.sock"\nuser = "root"\n[remotes.user]\npackets = "headers"\n')
                file.write(f'[devices.{device}]\nbuffer = {buffer}\nfilter = "ip"\n')
            watched.append(start(processes, [program, "sensor", "run", "--config", f"{path}.toml"], "sensor at"))
            agent = ["--listen", f"{host}:2233", "--socket", f"{path}.sock", "--keys", f"{folder}/keys", "--identity", f"s{number}"]
            start(processes, [program, "sensor-agent", *agent], "agent of")
        between = "127.0.1.1:fg1,127.0.1.2:fg3"
        words = ["loss", "--json", "--flows", "--every", "1s", "--between", between, "--keys", f"{folder}/keys", "--identity", "user"]
        with open(f"{folder}/rows", "w", encoding="utf-8") as out, open(f"{folder}/said", "w", encoding="utf-8") as said:
            loss = subprocess.Popen([program, *words], stdout=out, stderr=said)
        time.sleep(2)
        before = backlog_drops()
        blinker = subprocess.Popen([sys.executable, "-c", BLINK, str(watched[1].pid), "0.9"]) if drops else None
        sent = send(flows)
        if blinker:
            end([blinker])
        # Until flows have ended for both, and what is later.
        time.sleep(8)
        loss.send_signal(signal.SIGINT)
        loss.wait()
        with open(f"{folder}/rows", encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        with open(f"{folder}/said", encoding="utf-8") as file:
            if text := file.read().strip():
                print(text)
        name = "sensors, one stopped" if drops else "sensors"
        return report(f"{name}, {rate:.1%}", rows, link.truth(), sent, backlog_drops() - before, "", drops)
    finally:
        end(processes)


def stacks(program, folder, link, rate, flows):
    """Two stacks that observe, of which one is stopped again and again, and one that compares their records, which come over links."""
    link.begin(0)
    processes, points = [], []
    hub, names = "127.0.0.1:2234", ("left", "right")
    compared = f'loss {{ points = "{", ".join(names)}", flows = yes, interval = 1s }}'
    text = f"input {{ listen = {hub}, identity = hub, keys = {folder}/keys, senders = 2, type = record }} - {compared} - output"
    try:
        with open(f"{folder}/rows", "w", encoding="utf-8") as out:
            loss = subprocess.Popen([program, "stack", "run", "--json", "-e", text], stdout=out)
        processes.append(loss)
        for number, device in ((1, "fg1"), (2, "fg3")):
            observe = f"observe {{ point = {names[number - 1]}, interval = 1s }}"
            text = f"{observe} - output {{ to = {hub}, identity = s{number}, keys = {folder}/keys }}"
            buffer = "256" if number == 2 else "262144"
            points.append(subprocess.Popen([program, "stack", "run", "-q", "-i", device, "-B", buffer, "-e", text, "ip"]))
        processes += points
        while capturing() < 2:
            if any(process.poll() is not None for process in processes):
                sys.exit("a stack has ended")
            time.sleep(0.05)
        # They observe from their first packet on, and what is next to it is not compared.
        send(1)
        time.sleep(0.5)
        link.begin(rate)
        before = backlog_drops()
        blinker = subprocess.Popen([sys.executable, "-c", BLINK, str(points[1].pid), "0.05"])
        sent = send(flows)
        end([blinker])
        time.sleep(3)
        end(points)
        loss.wait()
        with open(f"{folder}/rows", encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        return report(f"links, one stopped, {rate:.1%}", rows, link.truth(), sent, backlog_drops() - before, "", True)
    finally:
        end(processes)


def capturing():
    """How many sockets capture."""
    with open("/proc/net/packet", encoding="ascii") as file:
        return len(file.readlines()) - 1


# A process stands still, again and again.
BLINK = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
try:
    while True:
        time.sleep(float(sys.argv[2])); os.kill(int(sys.argv[1]), signal.SIGSTOP)
        time.sleep(0.1); os.kill(int(sys.argv[1]), signal.SIGCONT)
finally:
    os.kill(int(sys.argv[1]), signal.SIGCONT)
"""


def report(name, rows, truth, sent, elsewhere, more, drops=False):
    """Compares flow by flow; says what differs."""
    found = collections.Counter()
    for row in rows:
        if row["of"] == "flow":
            found[row["src_ip"], row["src_port"], row["dst_ip"], row["dst_port"]] += row["lost"] + row["one_sided"]
    total = [row for row in rows if row["of"] == "total"]
    of = lambda field: sum(row[field] for row in total)
    dropped = sum(dropped for _, dropped in truth.values())
    wrong = sum(found[way] != dropped for way, (_, dropped) in truth.items())
    offset = next((row for row in total if row["offset"] is not None), None)
    clock = f"offset {offset['offset']:.6f} s +- {offset['offset_error'] * 1e6:.0f} us" if offset else ""
    print(f"{name}: {len(truth)} directions, {sent} packets, dropped {dropped}; lost {of('lost')}, one-sided {of('one_sided')}, "
          f"duplicates {of('duplicates')}, uncompared {of('uncompared')}, between {of('least')} and {of('most')}; "
          f"flows that differ: {wrong}; {clock} {more}")
    if elsewhere:
        print(f"  {elsewhere} packets were lost in the kernel's backlog, which the link did not count")
    if drops:
        captures = max(row["to_dropped"] + row["from_dropped"] for row in total)
        print(f"  the stopped point lost {captures} packets ({captures / sent:.1%})")
        return captures > 0 and of("least") <= dropped <= of("most")
    # What the kernel itself dropped before the link counts as lost to it, rightly.
    return wrong <= elsewhere


def backlog_drops():
    with open("/proc/net/softnet_stat", encoding="ascii") as file:
        return sum(int(line.split()[1], 16) for line in file)


def start(processes, words, ready):
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    processes.append(process)
    while ready not in (line := process.stderr.readline()):
        if not line:
            sys.exit(f"{words}: ended")
    return process


def end(processes):
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait()


def run(words):
    subprocess.run(words.split(), check=True)


if __name__ == "__main__":
    main()
