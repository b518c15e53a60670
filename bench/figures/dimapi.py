#!/usr/bin/env python3
"""Sensors of other machines: bytes and times of scopes, beside the figures of the DiMAPI thesis (5.1 to 5.8).

    cargo build --release -p flowgauge-cli -p flowgauge-libmapi
    cargo build --release -p flowgauge-sensor-agent --example scope
    sudo bench/figures/dimapi.py target/release/flowgauge target/release/examples/scope target/release/libmapi.so [AGENTS]

Writes docs/figures-dimapi.md and its plots. Starts sensors and agents as processes in a network namespace of their own, where
nothing else is on loopback, and ends them. Bytes are those of loopback (TCP, IP and 14 bytes of each frame).
"""
import ctypes
import json
import os
import queue
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

import plot

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs")
SENSORS = 15
COUNTS = [1, 5, 10, 15]
STACKS = {1: "bytes", 8: " ".join(f"count {{ as = c{number} }}" for number in range(7)) + " bytes"}
SAMPLES = "hash_sample { range = 10, as = samples }"
AVERAGE = 775  # bytes of a packet of mix


def main():
    program, scope, library = map(os.path.abspath, sys.argv[1:4])
    agents = int(sys.argv[4]) if len(sys.argv) > 4 else 500
    if "FLOWGAUGE_INSIDE" not in os.environ:
        os.environ["FLOWGAUGE_INSIDE"] = "1"
        words = ["unshare", "-n", sys.executable, *sys.argv]
        sys.exit(subprocess.run(words).returncode)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with tempfile.TemporaryDirectory() as folder:
        place = Place(program, scope, library, folder)
        try:
            page = [HEAD, place.scopes(), place.delays(), place.mapi(), place.transfers(), place.many(agents)]
        finally:
            place.end()
    with open(os.path.join(DOCS, "figures-dimapi.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(page))


HEAD = """# Figures 5.1 to 5.8 of the DiMAPI thesis, reproduced

Written by `bench/figures/dimapi.py`: sensors, agents and the querying program are processes on one machine with two cores, over
loopback with TLS 1.3. Bytes are those of frames (including 14 bytes of Ethernet header), with acknowledgements. The thesis measured without encryption.
*Polled* results are requested for each reading, *pushed* ones arrive at an interval."""


class Place:
    """Keys, sensors and agents."""

    def __init__(self, program, scope, library, folder):
        self.program, self.scope, self.library, self.folder = program, scope, library, folder
        self.processes = []
        self.keys("authority")
        self.keys("add", "user")
        for name, words in (("mix", ["--packets", "200000"]), ("long", ["--packets", "200000", "--duration", "600"])):
            self.generate(name, *words)
        devices = self.device("full", "mix", "full") + self.device("real", "long", "real")
        self.members = [self.sensor(number, devices) for number in range(SENSORS)]

    def keys(self, *words):
        subprocess.run([self.program, "keys", *words, "--keys", f"{self.folder}/keys"], check=True, capture_output=True)

    def generate(self, name, *words):
        words = ["generate", "mix", "-q", *words, "-w", f"{self.folder}/{name}.pcap"]
        subprocess.run([self.program, *words], check=True)

    def device(self, name, trace, speed):
        return f'[devices.{name}]\nfiles = ["{self.folder}/{trace}.pcap"]\nspeed = "{speed}"\nhold = true\n'

    def sensor(self, number, devices, agents=1):
        """Starts a sensor and its agents. Returns the address of the first."""
        host, name = f"127.0.1.{number + 1}", f"{self.folder}/{number}"
        self.keys("add", f"s{number}", "--host", host)
        with open(f"{name}.toml", "w", encoding="utf-8") as file:
            file.write(f'socket = "{name}"\nuser = "root"\n[remotes.user]\npackets = "payload"\nmost_flows = 1000000\nadmin = true\n{devices}')
        self.start([self.program, "sensor", "run", "--config", f"{name}.toml"], "sensor at")
        for port in range(2233, 2233 + agents):
            agent = ["--listen", f"{host}:{port}", "--socket", name, "--keys", f"{self.folder}/keys", "--identity", f"s{number}"]
            self.start([self.program, "sensor-agent", *agent], "agent of")
        return f"{host}:2233"

    def start(self, words, ready):
        process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        self.processes.append(process)
        while ready not in (line := process.stderr.readline()):
            if not line:
                sys.exit(f"{words}: ended")

    def end(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()

    def ask(self, members, device, stack, seconds=5, interval=100, prefetch=0):
        """Phases of a flow, by name."""
        members = ",".join(f"{member}:{device}" for member in members)
        words = [self.scope, f"{self.folder}/keys", "user", members, stack, str(seconds), str(interval), str(prefetch)]
        output = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        print(words[-5:], output, file=sys.stderr)
        return {line["phase"]: line for line in map(json.loads, output.splitlines())}

    def scopes(self):
        """Figures 5.1 to 5.4."""
        opening = {functions: [] for functions in STACKS}
        times, connecting = {"asked for": [], "by themselves": []}, {}
        for count in COUNTS:
            for functions, stack in STACKS.items():
                phases = self.ask(self.members[:count], "real", stack, 3)
                opening[functions].append((count, phases["open"]["wire_bytes"] / 1e3))
            connecting[count] = phases["connect"]
            times["asked for"].append((count, phases["pull"]["median_ms"]))
            times["by themselves"].append((count, phases["push"]["median_ms"]))
        polling = {"bytes": {0.1: [], 1: [], 10: []}, SAMPLES: {0.1: []}}
        for what, intervals in polling.items():
            for interval, points in intervals.items():
                for count in COUNTS:
                    phases = self.ask(self.members[:count], "real", what, max(3, 1.2 * interval), int(interval * 1000))
                    for way in ("pull", "push"):
                        kbit = phases[way]["wire_bytes"] * 8e-3 / phases[way]["seconds"]
                        points.append((way, count, kbit))
        plot.lines(f"{DOCS}/figures/dimapi-opening.svg", "Opening a flow (figure 5.1)", "sensors", "kB", [(f"{n} functions", points) for n, points in opening.items()])
        lines = [
            (f"{way}, every {interval} s", [(count, kbit) for its, count, kbit in points if its == way])
            for interval, points in polling["bytes"].items()
            for way in ("pull", "push")
        ]
        plot.lines(f"{DOCS}/figures/dimapi-polling.svg", "Reading BYTE_COUNTER (figure 5.2)", "sensors", "kbit/s", lines, y_min=0.1)
        rows = []
        for at, count in enumerate(COUNTS):
            polled = [next(kbit for way, its, kbit in polling[what][0.1] if (way, its) == (how, count)) for what in polling for how in ("pull", "push")]
            rows.append(
                [count, round(connecting[count]["wire_bytes"] / 1e3, 1), *(round(opening[n][at][1], 1) for n in STACKS)]
                + [round(kbit, 1) for kbit in polled]
                + [times["asked for"][at][1], times["by themselves"][at][1]]
            )
        head = ["sensors", "connecting, kB", "1 function, kB", "8 functions, kB"]
        head += ["BYTE_COUNTER polled, kbit/s", "pushed", "HASHSAMP polled, kbit/s", "pushed", "a reading polled, ms", "pushed"]
        return f"""
## Opening and reading (5.1 to 5.4)

Connecting (TLS with certificates of both ends) is a separate column. Functions are read every 0.1 s. Thesis, 15 sensors: 15 kB for 1
function, 45 for 8; BYTE_COUNTER 295 kbit/s; under 1 ms for a reading.

{plot.table(head, rows)}

![Opening](figures/dimapi-opening.svg) ![Reading](figures/dimapi-polling.svg)
"""

    def delays(self):
        """Reading over a network with a delay, made by a process between."""
        rows = []
        for round_trip, thesis in ((0.00067, 0.68), (0.1607, 170.6), (0.2792, 283.7)):
            with Delay(self.members[0], round_trip / 2) as (address, probe):
                phases = self.ask([address], "real", "bytes", 4, 100)
                rows.append([round(round_trip * 1e3, 2), round(probe * 1e3, 2), phases["pull"]["median_ms"], thesis, phases["push"]["median_ms"]])
        head = ["round trip, ms", "round trip of a message through the proxy", "a reading, ms", "thesis", "a pushed reading"]
        return f"## A reading and the network's delay\n\nMedians; a proxy delays the traffic.\n\n{plot.table(head, rows)}\n"

    def mapi(self):
        """What programs of MAPI send and receive."""
        os.environ["FLOWGAUGE_KEYS"], os.environ["FLOWGAUGE_IDENTITY"] = f"{self.folder}/keys", "user"
        rows = [program_of_mapi(ctypes.CDLL(self.library), ",".join(f"{it}:real" for it in self.members), functions) for functions in STACKS]
        head = ["functions", "first flow with connecting, kB", "further flow, kB", "ms", "polled every 0.1 s, kbit/s", "ms", "pushed, kbit/s", "ms"]
        return f"## MAPI programs\n\n`libmapi` on {SENSORS} sensors (through Python's ctypes, whose time is included).\n\n{plot.table(head, rows)}\n"

    def transfers(self):
        """Figures 5.5 to 5.8: a sensor of its own for each part, as a trace is read once."""
        offered, prefetched = [10, 50, 100, 150, 200, 500, 1000], [1, 100, 500, 2000]
        devices = ""
        rates = {}
        for mbit in offered:
            count = int(min(mbit, 300) * 5e6 / 8 / AVERAGE)
            self.generate(f"m{mbit}", "--packets", str(count), "--duration", str(count * AVERAGE * 8e-6 / mbit))
            rates[mbit] = rate_of(f"{self.folder}/m{mbit}.pcap")
            devices += self.device(f"m{mbit}", f"m{mbit}", "real")
        for count in prefetched:
            devices += self.device(f"p{count}", "m100", "real") + self.device(f"f{count}", "mix", "full")
        address = self.sensor(SENSORS, devices)
        loads = [(mbit, self.packets(address, f"m{mbit}", 0)) for mbit in offered]
        rows = [[round(rates[mbit], 1), round(it["mbit"], 1), round(it["us"], 2), it["lost"]] for mbit, it in loads]
        text = "## Packets (5.5 to 5.8)\n\nThesis: requested one by one, 22 Mbit/s and 200 us each; prefetched, 185 Mbit/s of 200 offered, 42 to 52 us each. Here, waiting packets are sent\ntogether, however few were requested.\n\n"
        text += plot.table(["offered, Mbit/s", "received, Mbit/s", "CPU time each, us", "lost"], rows)
        rows = []
        for count in prefetched:
            at_100, full = (self.packets(address, f"{kind}{count}", max(1, count * AVERAGE)) for kind in "pf")
            rows.append([count, round(at_100["mbit"], 1), at_100["lost"], round(full["mbit"]), round(full["us"], 2), full["lost"]])
        full = self.packets(self.members[0], "full", 0)
        rows.append(["default", "", "", round(full["mbit"]), round(full["us"], 2), full["lost"]])
        head = ["packets prefetched", f"of {rates[100]:.1f} Mbit/s received", "lost", "at full speed, Mbit/s", "CPU time each, us", "lost"]
        return f"{text}\n\nBy number of packets prefetched (on average; thesis, of 100 Mbit/s: 100 packets 81 Mbit/s, 500 99.9):\n\n{plot.table(head, rows)}\n"

    def packets(self, address, device, prefetch):
        it = self.ask([address], device, "to_buffer", 30, 100, prefetch)["packets"]
        return {"mbit": (it["octets"] - 20 * it["packets"]) * 8e-6 / it["seconds"], "us": it["cpu"] * 1e6 / max(it["packets"], 1), "lost": it["lost"]}

    def many(self, count):
        """One scope of many agents, of one sensor as there is one machine."""
        address = self.sensor(SENSORS + 1, self.device("real", "long", "real"), count)
        host = address.rsplit(":", 1)[0]
        phases = self.ask([f"{host}:{2233 + number}" for number in range(count)], "real", "bytes", 5, 200)
        rows = [
            ["connecting", round(phases["connect"]["seconds"] * 1e3), round(phases["connect"]["wire_bytes"] / 1e3)],
            ["opening a flow", round(phases["open"]["seconds"] * 1e3), round(phases["open"]["wire_bytes"] / 1e3)],
            ["a polled reading (median)", phases["pull"]["median_ms"], round(phases["pull"]["wire_bytes"] / phases["pull"]["reads"] / 1e3, 1)],
            ["a pushed reading (median)", phases["push"]["median_ms"], ""],
        ]
        return f"## {count} agents in one scope\n\n{plot.table(['', 'ms', 'kB'], rows)}\n"


class Delay:
    """A process between, as far as a thread is one: what passes it comes so many seconds later."""

    def __init__(self, target, seconds):
        self.target, self.seconds = target, seconds
        host = target.rsplit(":", 1)[0]
        self.listener = socket.create_server((host, 0))
        self.address = f"{host}:{self.listener.getsockname()[1]}"

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        # What a round trip really takes.
        one, other = socket.socketpair()
        near, far = socket.socketpair()
        for source, sink in ((other, near), (near, other)):
            self.pass_on(source, sink)
        times = []
        for _ in range(20):
            begun = time.monotonic()
            one.sendall(b"x")
            far.recv(1)
            far.sendall(b"x")
            one.recv(1)
            times.append(time.monotonic() - begun)
        return self.address, sorted(times)[10]

    def __exit__(self, *_):
        self.listener.close()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            host, port = self.target.rsplit(":", 1)
            far = socket.create_connection((host, int(port)))
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.pass_on(near, far)
            self.pass_on(far, near)

    def pass_on(self, source, sink):
        under_way = queue.SimpleQueue()

        def read():
            while True:
                data = source.recv(65536)
                under_way.put((time.monotonic() + self.seconds, data))
                if not data:
                    return

        def write():
            while True:
                due, data = under_way.get()
                time.sleep(max(0, due - time.monotonic()))
                if not data:
                    return sink.shutdown(socket.SHUT_WR)
                sink.sendall(data)

        for work in (read, write):
            threading.Thread(target=quietly(work), daemon=True).start()


def quietly(work):
    """Until a connection ends."""

    def run():
        try:
            work()
        except OSError:
            pass

    return run


def program_of_mapi(mapi, members, functions):
    """The first flow connects to the sensors, the second is measured."""
    flows = []
    for _ in range(2):
        before, begun = wire_bytes(), time.monotonic()
        flow = mapi.mapi_create_flow(members.encode())
        for _ in range(functions):
            mapi.mapi_apply_function_counted(flow, 0, b"BYTE_COUNTER")
        connected = mapi.mapi_connect(flow)
        milliseconds = (time.monotonic() - begun) * 1000
        assert flow > 0 and connected == 0, (flow, connected)
        flows.append((round((wire_bytes() - before) / 1e3, 1), round(milliseconds, 1)))
    mapi.mapi_read_results.restype = ctypes.c_void_p
    row = [functions, flows[0][0] if functions == 1 else "", *flows[1]]
    for interval in (0, 100):
        assert mapi.mapi_set_option(flow, 1, ctypes.c_ulonglong(interval)) == 0
        time.sleep(0.3)
        before, begun, times = wire_bytes(), time.monotonic(), []
        for _ in range(30):
            asked = time.monotonic()
            assert mapi.mapi_read_results(flow, 1)
            times.append(time.monotonic() - asked)
            time.sleep(max(0, 0.1 - times[-1]))
        kbit = (wire_bytes() - before) * 8e-3 / (time.monotonic() - begun)
        row += [round(kbit), round(sorted(times)[15] * 1e3, 3)]
    return row


def rate_of(path):
    """Mbit/s of a trace."""
    with open(path, "rb") as file:
        data = file.read()
    at, octets, times = 24, 0, []
    while at < len(data):
        seconds, fraction, captured, length = struct.unpack_from("<IIII", data, at)
        times.append(seconds + fraction * 1e-6)
        octets += length
        at += 16 + captured
    return octets * 8e-6 / (times[-1] - times[0])


def wire_bytes():
    with open("/proc/self/net/dev", encoding="utf-8") as file:
        return next(int(line.split()[9]) for line in file if line.lstrip().startswith("lo:"))


if __name__ == "__main__":
    main()
