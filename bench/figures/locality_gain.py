#!/usr/bin/env python3
"""What programs gain by locality buffering, beside the figures of the MASCOTS paper (docs/figures-locality.md).

    cargo build --release -p flowgauge-cli && make shim && make -C examples/pcap
    bench/figures/nids_rules.py > nmap.rules
    bench/figures/locality_gain.py traces CORPORA RULES FOLDER
    bench/figures/locality_gain.py misses|time FLOWGAUGE LIBRARY NIDS RULES TRACE [PROGRAM...]
    bench/figures/locality_gain.py peer FLOWGAUGE LIBRARY NIDS RULES TRACE PEER
    sudo bench/figures/locality_gain.py cable|live FLOWGAUGE LIBRARY NIDS RULES TRACE [PROGRAM...]
    sudo bench/figures/locality_gain.py loss FLOWGAUGE LIBRARY NIDS RULES TRACE

traces  makes two: `real`, the captures of test suites, merged so closely that many are under way at once; `services`, their payloads
        of text, each once after the other, to and from the 40 ports that have most rules, by chance
misses  instructions, cache misses and cycles as cachegrind estimates them, offline, by size of the buffer
time    processor time, offline, by size of the buffer
peer    processor time of NIDS and of the same by crate aho-corasick (crates/matcher/examples/nids)
cable   as misses, on an interface, where also the program without the library reads packets from the kernel's ring
live    processor time of programs on an interface, by size of the buffer
loss    packets that NIDS on one core loses, by rate

Each prints tables; misses and loss write plots into docs/figures. The last three make a network namespace; the sender has the first
core, the program the second.
"""
import collections
import itertools
import json
import os
import random
import re
import resource
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import plot

HERE = os.path.dirname(os.path.abspath(__file__))
FIGURES = os.path.join(HERE, "..", "..", "docs", "figures")
sys.path.insert(0, os.path.join(HERE, ".."))
import real  # noqa: E402

BUFFERS = [100, 1000, 4000, 16000]
KINDS = ("dst-port", "lower-port")
VARIANTS = ("zero-copy", "simple", "threaded")
SERVICES = 40
# The paper's machine: 8 KB of first level, 512 KB of second. A core of today: 48 KB and its 2 MB.
CACHES = {
    "512 KB": ["--I1=16384,8,64", "--D1=8192,4,64", "--LL=524288,8,64"],
    "2 MB": ["--I1=32768,8,64", "--D1=49152,12,64", "--LL=2097152,16,64"],
}
ROUNDS = 3
# A trace comes so often where its time is measured.
TIMES = 10
# What else runs on the machine takes no part of the cores.
REAL_TIME = ["chrt", "-f", "10"]
NAMESPACE = f"fg-locality-{os.getpid()}"


class Place:
    """Programs, and the folder they write to."""

    def __init__(self, folder, words):
        self.folder = folder
        self.flowgauge, self.library, self.nids, self.rules, self.trace = map(os.path.abspath, words[:5])
        self.packets = count(self.trace)

    def offline(self, trace):
        """What reads the trace, by name."""
        return {
            "NIDS": [self.nids, "-q", "-r", trace, self.rules],
            "ndpiReader": ["ndpiReader", "-q", "-i", trace],
            "softflowd": ["softflowd", "-d", "-r", trace, "-m", "100000", "-n", "127.0.0.1:9", "-c", "none", "-p", self.file("pid")],
            "tcpflow": ["tcpflow", "-q", "-r", trace, "-o", self.file("out")],
            "nfpcapd": ["nfpcapd", "-r", trace, "-w", self.file("out")],
        }

    def live(self):
        return {
            "NIDS": [self.nids, "-q", "-B", "32", "-i", "fg1", self.rules],
            "fprobe": ["fprobe", "-l", "2", "-i", "fg1", "127.0.0.1:9"],
        }

    def file(self, name):
        return os.path.join(self.folder, name)

    def environment(self, buffer, variant="simple", kind="dst-port", timeout="none"):
        """What puts the library in front of libpcap, and has it tell its counts."""
        if buffer is None:
            return os.environ
        return {
            **os.environ,
            "LD_PRELOAD": self.library,
            "FLOWGAUGE_LOCALITY_BUFFER": str(buffer),
            "FLOWGAUGE_LOCALITY_VARIANT": variant,
            "FLOWGAUGE_LOCALITY_CLASS": kind,
            "FLOWGAUGE_LOCALITY_TIMEOUT": timeout,
            "FLOWGAUGE_LOCALITY_COUNTS": "1",
        }

    def run(self, command, environment):
        """Runs a command to its end, and makes sure that packets were gathered."""
        self.clear()
        done = subprocess.run(command, env=environment, cwd=self.folder, capture_output=True, text=True, errors="replace")
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        if "LD_PRELOAD" in environment:
            gathered(command, done.stderr)
        return done

    def clear(self):
        shutil.rmtree(self.file("out"), ignore_errors=True)
        os.mkdir(self.file("out"))


def gathered(command, said):
    """Makes sure that packets went through a buffer."""
    into, beside = (sum(map(int, re.findall(rf"^flowgauge locality: .* {name} (\d+)", said, re.M))) for name in ("gathered", "passed"))
    if into == 0 or beside * 20 > into + beside:
        sys.exit(f"{' '.join(command)}: of {into + beside} packets {into} went through a buffer\n{said[-500:]}")


def count(path):
    """Packets of a classic pcap file in this machine's order."""
    packets, at, size = 0, 24, os.path.getsize(path)
    with open(path, "rb") as file:
        while at < size:
            file.seek(at + 8)
            at += 16 + struct.unpack("=I", file.read(4))[0]
            packets += 1
    return packets


def first(place):
    """A file with the first packet of the trace."""
    path = place.file("first.pcap")
    with open(place.trace, "rb") as file, open(path, "wb") as out:
        out.write(file.read(24))
    with open(path, "ab") as out:
        out.write(b"".join(next(records(place.trace))))
    return path


def repeated(place):
    """The trace several times in one file."""
    path = place.file("repeated.pcap")
    if not os.path.exists(path):
        shutil.copy(place.trace, path)
        with open(path, "ab") as out:
            for _ in range(TIMES - 1):
                with open(place.trace, "rb") as file:
                    file.seek(24)
                    shutil.copyfileobj(file, out)
    return path


def records(path):
    """The headers and bytes of a trace's packets."""
    with open(path, "rb") as file:
        file.read(24)
        while header := file.read(16):
            yield header, file.read(struct.unpack_from("=I", header, 8)[0])


def traces(corpora, rules, folder):
    path = os.path.join(folder, "real.pcap")
    real.SPACING_NS = 5_000_000
    captures, packets = real.make(corpora, path, 1)
    print(f"{path}: {captures} captures, {packets} packets, {os.path.getsize(path)} bytes")
    services(path, rules, os.path.join(folder, "services.pcap"))


def texts(path):
    """Payloads of TCP segments that are text, each once."""
    found = set()
    for _, frame in records(path):
        if len(frame) < 60 or frame[12:14] != b"\x08\0" or frame[23] != 6:
            continue
        tcp = 14 + (frame[14] & 15) * 4
        payload = frame[tcp + (frame[tcp + 12] >> 4) * 4 :][:1400] if len(frame) > tcp + 12 else b""
        if len(payload) >= 100 and sum(32 <= byte < 127 or byte in b"\t\r\n" for byte in payload) >= 0.95 * len(payload):
            found.add(payload)
    return sorted(found)


def services(source, rules, path, packets=60000):
    """Each packet is one of 2,000 clients' and one of 40 services', six of ten from the service."""
    sizes = collections.Counter()
    with open(rules, encoding="utf-8") as file:
        for line in file:
            ports = re.match(r"alert tcp any \[([\d,]+)\] ->", line)
            sizes.update(int(port) for port in ports[1].split(",")) if ports else None
    ports = [port for port, _ in sizes.most_common(SERVICES)]
    payloads, chosen = texts(source), random.Random(1)
    chosen.shuffle(payloads)
    with open(path, "wb") as out:
        out.write(struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for number in range(packets):
            payload, client = payloads[number % len(payloads)], chosen.randrange(2000)
            ends = [(b"\x0a\0\0\1", chosen.choice(ports)), (struct.pack(">BBH", 10, 1, client), 20000 + client * 17 % 40000)]
            (source_ip, source_port), (target_ip, target_port) = ends if chosen.random() < 0.6 else ends[::-1]
            ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 40 + len(payload), number & 65535, 0x4000, 64, 6, 0, source_ip, target_ip)
            tcp = struct.pack(">HHIIBBHHH", source_port, target_port, number, 0, 0x50, 0x18, 1000, 0, 0)
            frame = b"\2\0\0\0\0\1\2\0\0\0\0\2\x08\0" + ip + tcp + payload
            out.write(struct.pack("=IIII", 1600000000 + number // 20000, number % 20000 * 50, len(frame), len(frame)) + frame)
    print(f"{path}: {len(payloads)} payloads of {sum(map(len, payloads))} bytes, {packets} packets, {os.path.getsize(path)} bytes")
    print("ports and rules:", ", ".join(f"{port}: {size}" for port, size in sizes.most_common(SERVICES)))


def simulated(place, command, environment, cache):
    valgrind = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=/dev/null", *CACHES[cache]]
    return figures(place.run([*valgrind, *command], environment).stderr)


def figures(said):
    """Instructions, misses of the last level, and cycles as they are estimated from both and those of the first level."""

    def figure(name):
        return int(re.search(name + r":\s+([\d,]+)", said)[1].replace(",", ""))

    instructions, last = figure("I +refs"), figure("LL misses")
    return instructions, last, instructions + 10 * (figure("I1 +misses") + figure("D1 +misses")) + 100 * last


class Simulation:
    """Figures per packet: those of the trace less those of its first packet."""

    def __init__(self, place, name, cache):
        self.place, self.name, self.cache, self.start = place, name, cache, {}

    def per_packet(self, environment, file=None):
        place, shimmed = self.place, "LD_PRELOAD" in environment
        command = place.offline(file or place.trace)[self.name]
        if shimmed not in self.start:
            self.start[shimmed] = simulated(place, place.offline(first(place))[self.name], environment, self.cache)
        found = simulated(place, command, environment, self.cache)
        return [(one - other) / (place.packets - 1) for one, other in zip(found, self.start[shimmed])]


def kinds(name):
    """Classes that a program is measured with."""
    return KINDS if name == "NIDS" else KINDS[:1]


WHAT = [("instructions", ".0f"), ("misses", ".1f"), ("cycles", ".0f")]


def misses(place, *programs):
    files = {kind: place.file(f"sorted-{kind}.pcap") for kind in KINDS}
    for kind, file in files.items():
        words = ["locality", "sort", "-q", "--class", kind, "-r", place.trace, "-w", file]
        subprocess.run([place.flowgauge, *words], check=True)
    for cache in CACHES:
        rows, series = [], {what: [] for what, _ in WHAT}
        for name in programs or place.offline(""):
            simulation = Simulation(place, name, cache)
            plain = simulation.per_packet(os.environ)
            for kind in kinds(name):
                found = [simulation.per_packet(place.environment(it, kind=kind)) for it in BUFFERS]
                best = simulation.per_packet(os.environ, files[kind])
                for at, (what, digits) in enumerate(WHAT):
                    rows.append([f"{name}, {kind}", what, *(f"{row[at]:{digits}}" for row in (plain, *found, best))])
                    series[what].append((f"{name}, {kind}", [(x, row[at] / plain[at]) for x, row in zip(BUFFERS, found)]))
                    print(rows[-1], file=sys.stderr, flush=True)
        print(f"\n{cache} of last-level cache, per packet:\n")
        print(plot.table(["program, class", "", "without", *map(str, BUFFERS), "sorted file"], rows), flush=True)
        trace = os.path.basename(place.trace).removesuffix(".pcap")
        for what in ("misses", "cycles"):
            path = os.path.join(FIGURES, f"locality-{what}-{trace}-{cache.split()[0]}.svg")
            title = f"{what.capitalize()} beside those without the library, {cache}, {trace}"
            plot.lines(path, title, "packets of a buffer", "ratio", series[what], log_x=True)


def seconds(place, command, environment):
    """Processor time of a run, the median of rounds."""
    times = []
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        place.run(command, environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(times)


def nanoseconds(place, name, environment):
    """What the trace takes when it comes again: beginnings take long, and differ."""
    long, short = (seconds(place, place.offline(path)[name], environment) for path in (repeated(place), place.trace))
    return (long - short) * 1e9 / place.packets / (TIMES - 1)


def offline_time(place, *programs):
    rows = []
    for name in programs or place.offline(""):
        plain = nanoseconds(place, name, os.environ)
        for kind in kinds(name):
            for variant in ("simple", "threaded"):
                row = [nanoseconds(place, name, place.environment(it, variant, kind)) for it in BUFFERS]
                rows.append([f"{name}, {kind}", variant, *(f"{it:.0f}" for it in (plain, *row))])
                print(rows[-1], file=sys.stderr, flush=True)
    print(plot.table(["program, class", "variant", "without", *map(str, BUFFERS)], rows))


def peer(place, program):
    """Alerts have to be the same, too."""
    rows = []
    ours = place.run(place.offline(place.trace)["NIDS"], os.environ).stderr.splitlines()[-1]
    took = nanoseconds(place, "NIDS", os.environ)
    rows.append(["examples/pcap/nids", f"{took:.0f}", ours])
    for kind in ("dfa", "contiguous", "auto"):
        told = [subprocess.run([program, kind, place.rules, place.trace], capture_output=True, text=True, check=True).stdout.strip() for _ in range(ROUNDS)]
        best = min(float(line.split()[0]) for line in told)
        rows.append([f"aho-corasick, {kind}", f"{best * 1e9 / place.packets:.0f}", told[0].split(", ", 1)[1]])
    print(plot.table(["", "ns per packet", ""], rows))


def inside(*words):
    return ["ip", "netns", "exec", NAMESPACE, *words]


class Cable:
    """fg0 and fg1, the ends of a virtual cable, while the block lasts."""

    def __enter__(self):
        subprocess.run(["ip", "netns", "add", NAMESPACE], check=True)
        for words in (
            "link set lo up",
            "link add fg0 mtu 9000 type veth peer name fg1 mtu 9000",
            "link set fg0 up",
            "link set fg1 up",
        ):
            subprocess.run(["ip", "-n", NAMESPACE, *words.split()], check=True)
        subprocess.run(inside("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"), check=True)
        return self

    def __exit__(self, *_):
        subprocess.run(["ip", "netns", "del", NAMESPACE], check=True)


def sockets():
    return len(subprocess.check_output(inside("cat", "/proc/net/packet")).splitlines()) - 1


def at_rate(place, rate, length):
    """What has the trace sent at so many Mbit/s for so many seconds."""
    size = os.path.getsize(place.trace) - 16 * place.packets - 24
    passes = rate * 1e6 / 8 * length / size
    return ["--rate", f"{rate}mbit", "--loop", str(max(1, round(passes + 0.5))), "-c", str(max(1, round(passes * place.packets)))]


def live_run(place, command, environment, options, patience=0):
    """Has the trace sent, and waits until the program has nothing to do, where nothing is timed for so many seconds before. Returns what was sent, what the program said at its end, and its processor time meanwhile."""
    place.clear()
    priority = [] if patience else REAL_TIME
    child = subprocess.Popen(
        inside(*priority, "taskset", "-c", "1", *command), env=environment, cwd=place.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    while sockets() == 0:
        if child.poll() is not None:
            sys.exit(child.communicate()[1].decode())
        time.sleep(0.05)
    time.sleep(0.3)
    begun = cpu_of(child.pid)
    words = [*priority, "taskset", "-c", "0", place.flowgauge, "replay", "-q", "--json", "-r", place.trace, "-i", "fg0"]
    sent = json.loads(subprocess.run(inside(*words, *options), check=True, capture_output=True).stdout)
    time.sleep(patience)
    took = 0
    for _ in range(20):
        before, took = took, cpu_of(child.pid) - begun
        if took - before < 1e-4:
            break
        time.sleep(0.4)
    child.send_signal(signal.SIGTERM)
    said = child.communicate()[1].decode(errors="replace")
    if "LD_PRELOAD" in environment:
        gathered(command, said)
    return sent, said, took


def cpu_of(pid):
    """Processor time of all threads of a process until now."""
    tasks = f"/proc/{pid}/task"
    return sum(int(open(f"{tasks}/{task}/schedstat", encoding="ascii").read().split()[0]) for task in os.listdir(tasks)) / 1e9


def live(place, *programs, rate=200):
    rows = []
    with Cable():
        for name in programs or place.live():
            command = place.live()[name]
            plain = live_cost(place, command, os.environ, rate)
            for kind in kinds(name):
                for variant in VARIANTS:
                    row = [live_cost(place, command, place.environment(it, variant, kind, "100ms"), rate) for it in BUFFERS]
                    rows.append([f"{name}, {kind}", variant, *(f"{it:.0f}" for it in (plain, *row))])
                    print(rows[-1], file=sys.stderr, flush=True)
    print(f"Processor time at {rate} Mbit/s, ns per packet:\n")
    print(plot.table(["program, class", "variant", "without", *map(str, BUFFERS)], rows))


def live_cost(place, command, environment, rate):
    """The median of rounds, per packet."""
    runs = [live_run(place, command, environment, at_rate(place, rate, 1)) for _ in range(ROUNDS)]
    return statistics.median(took * 1e9 / sent["packets"] for sent, _, took in runs)


def lost(place, ways, way, rate, length=2):
    """The share of packets that the NIDS did not see, in percent, and the rate that was sent at."""
    sent, said, _ = live_run(place, place.live()["NIDS"], ways[way], at_rate(place, rate, length))
    seen = int(re.search(r"(\d+) packets, ", said)[1])
    return (1 - seen / sent["packets"]) * 100, sent["bytes"] * 8e-6 / sent["seconds"]


def loss(place, buffer="4000", kind="lower-port"):
    ways = {"without": os.environ}
    for variant in VARIANTS:
        ways[variant] = place.environment(int(buffer), variant, kind, "100ms")
    with Cable():
        onset, step = 100.0, 2.0
        while step > 1.04:
            share, reached = lost(place, ways, "without", onset * step)
            print(f"{onset * step:.0f} Mbit/s: {share:.2f} % at {reached:.0f}", file=sys.stderr, flush=True)
            if reached < 0.95 * onset * step:
                print(f"the sender reaches {reached:.0f} Mbit/s only", file=sys.stderr)
                break
            if share > 0.1:
                step **= 0.5
            else:
                onset *= step
        rates = [10, 100, 200, 300, *(round(onset * factor) for factor in (0.8, 1.1, 1.25, 1.5, 2, 2.5))]
        rows = []
        for rate in sorted(rates):
            row = {way: lost(place, ways, way, rate, 3 if rate > onset else 1) for way in ways}
            rows.append([rate, *(f"{row[way][0]:.2f}" for way in ways), f"{row['without'][1]:.0f}"])
            print(rows[-1], file=sys.stderr, flush=True)
    print(f"Begins to lose at {onset:.0f} Mbit/s.\n")
    print(plot.table(["Mbit/s", *(f"{way}, % lost" for way in ways), "sent, Mbit/s"], rows))
    series = [(way, [(row[0], float(row[1 + at])) for row in rows]) for at, way in enumerate(ways)]
    plot.lines(os.path.join(FIGURES, "locality-loss.svg"), "Loss of the NIDS on one core", "Mbit/s", "packets lost, %", series, log_x=True)


def cable(place, *programs, pps="2500"):
    """Misses on an interface: the start is what a run with one packet takes."""
    rows = []
    ways = {"without": None}
    for variant, buffer in ("zero-copy", 1000), ("zero-copy", 4000), ("zero-copy", 16000), ("simple", 4000):
        ways[f"{variant}, {buffer}"] = (buffer, variant)
    with Cable():
        for cache, name in itertools.product(CACHES, programs or place.live()):
            valgrind = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=/dev/null", *CACHES[cache]]
            command = [*valgrind, *place.live()[name]]
            row = []
            for way in ways.values():
                # So long it takes until a buffer of the largest size is full.
                environment = place.environment(*way, kinds(name)[-1], "10s") if way else os.environ
                start = figures(live_run(place, command, environment, ["--pps", pps, "-c", "1"], 11)[1])
                sent, said, _ = live_run(place, command, environment, ["--pps", pps], 11)
                seen = re.search(r"(\d+) packets, ", said)
                seen = int(seen[1]) if seen else sent["packets"]
                if seen < 0.9 * sent["packets"]:
                    sys.exit(f"of {sent['packets']} packets {seen} were seen: take a lower rate")
                row.append([(one - other) / (seen - 1) for one, other in zip(figures(said), start)])
            for at, (what, digits) in enumerate(WHAT):
                rows.append([f"{name}, {cache}", what, *(f"{it[at]:{digits}}" for it in row)])
                print(rows[-1], file=sys.stderr, flush=True)
    print(plot.table(["program, cache", "", *ways], rows))


def main():
    ways = {"misses": misses, "time": offline_time, "peer": peer, "cable": cable, "live": live, "loss": loss}
    if sys.argv[1:2] == ["traces"] and len(sys.argv) == 5:
        traces(*sys.argv[2:])
    elif len(sys.argv) >= 7 and sys.argv[1] in ways:
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o777)
            ways[sys.argv[1]](Place(folder, sys.argv[2:]), *sys.argv[7:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
