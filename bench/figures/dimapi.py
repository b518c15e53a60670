#!/usr/bin/env python3
"""Sensors of other machines: bytes and times of scopes, beside the figures of the DiMAPI thesis (5.1 to 5.6).

    cargo build --release -p flowgauge-cli -p flowgauge-libmapi
    cargo build --release -p flowgauge-sensor-agent --example scope
    sudo bench/figures/dimapi.py target/release/flowgauge target/release/examples/scope target/release/libmapi.so [SENSORS]

Starts sensors and agents as processes in a network namespace of their own, where nothing else is on loopback, and ends them.
Bytes are those of loopback (TCP, IP and 14 bytes of each frame).
"""
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time

FUNCTIONS = {1: "bytes", 8: " ".join(f"count {{ as = c{number} }}" for number in range(7)) + " bytes"}


def main():
    program, scope, library = map(os.path.abspath, sys.argv[1:4])
    sensors = int(sys.argv[4]) if len(sys.argv) > 4 else 15
    if "FLOWGAUGE_INSIDE" not in os.environ:
        os.environ["FLOWGAUGE_INSIDE"] = "1"
        words = ["unshare", "-n", sys.executable, *sys.argv]
        sys.exit(subprocess.run(words).returncode)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with tempfile.TemporaryDirectory() as folder:
        run(program, scope, library, sensors, folder)


def run(program, scope, library, count, folder):
    def keys(*words):
        subprocess.run([program, "keys", *words, "--keys", f"{folder}/keys"], check=True, capture_output=True)

    keys("authority")
    keys("add", "user")
    subprocess.run([program, "generate", "mix", "-q", "--packets", "200000", "-w", f"{folder}/mix.pcap"], check=True)
    processes, members = [], []
    try:
        for number in range(count):
            host = f"127.0.1.{number + 1}"
            keys("add", f"s{number}", "--host", host)
            with open(f"{folder}/{number}.toml", "w", encoding="utf-8") as file:
                file.write(f'socket = "{folder}/{number}"\nuser = "root"\n[remotes.user]\npackets = "payload"\n')
                file.write(f'[devices.real]\nfiles = ["{folder}/mix.pcap"]\nspeed = "real"\nhold = true\n')
                file.write(f'[devices.full]\nfiles = ["{folder}/mix.pcap"]\nhold = true\n')
            start(processes, [program, "sensor", "run", "--config", f"{folder}/{number}.toml"], "sensor at")
            agent = ["--listen", f"{host}:2233", "--socket", f"{folder}/{number}", "--keys", f"{folder}/keys", "--identity", f"s{number}"]
            start(processes, [program, "sensor-agent", *agent], "agent of")
            members.append(host)
        of = lambda device, members: ",".join(f"{host}:{device}" for host in members)
        for functions, stack in FUNCTIONS.items():
            ask(scope, folder, f"{functions} functions", of("real", members), stack, 5, 100)
        os.environ["FLOWGAUGE_KEYS"], os.environ["FLOWGAUGE_IDENTITY"] = f"{folder}/keys", "user"
        for functions in (1, 8):
            program_of_mapi(ctypes.CDLL(library), of("real", members), functions)
        ask(scope, folder, "packets of one", of("full", members[:1]), "to_buffer", 30, 100)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def start(processes, words, ready):
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    processes.append(process)
    while ready not in (line := process.stderr.readline()):
        if not line:
            sys.exit(f"{words}: ended")


def program_of_mapi(mapi, members, functions):
    """What a program of MAPI sends and receives: the first flow connects to the sensors, the second is measured."""
    for what in ("first flow", "further flow"):
        before, begun = wire_bytes(), time.monotonic()
        flow = mapi.mapi_create_flow(members.encode())
        for _ in range(functions):
            mapi.mapi_apply_function_counted(flow, 0, b"BYTE_COUNTER")
        connected = mapi.mapi_connect(flow)
        milliseconds = round((time.monotonic() - begun) * 1000, 3)
        assert flow > 0 and connected == 0, (flow, connected)
        print(json.dumps({"what": f"libmapi, {functions} functions", "step": what, "ms": milliseconds, "wire_bytes": wire_bytes() - before}), flush=True)
    mapi.mapi_read_results.restype = ctypes.c_void_p
    for what, interval in (("pull", 0), ("push", 100)):
        assert mapi.mapi_set_option(flow, 1, ctypes.c_ulonglong(interval)) == 0
        time.sleep(0.3)
        before, begun, times = wire_bytes(), time.monotonic(), []
        for _ in range(50):
            asked = time.monotonic()
            assert mapi.mapi_read_results(flow, 1)
            times.append(time.monotonic() - asked)
            time.sleep(0.1)
        kbit = (wire_bytes() - before) * 8e-3 / (time.monotonic() - begun)
        median = sorted(times)[25] * 1000
        print(json.dumps({"what": f"libmapi, {functions} functions", "step": what, "read_ms": round(median, 3), "kbit_per_s": round(kbit, 1)}), flush=True)


def wire_bytes():
    with open("/proc/self/net/dev", encoding="utf-8") as file:
        return next(int(line.split()[9]) for line in file if line.lstrip().startswith("lo:"))


def ask(scope, folder, what, members, stack, seconds, interval):
    words = [scope, f"{folder}/keys", "user", members, stack, str(seconds), str(interval)]
    output = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    for line in map(json.loads, output.splitlines()):
        line["what"] = what
        if "reads" in line:
            line["kbit_per_s"] = round(line["wire_bytes"] * 8e-3 / line["seconds"], 1)
        if "packets" in line:
            line["gbit_per_s"] = round(line["octets"] * 8e-9 / line["seconds"], 2)
            line["cpu_us_per_packet"] = round(line["cpu"] * 1e6 / max(line["packets"], 1), 3)
        print(json.dumps(line), flush=True)
        time.sleep(0.1)


if __name__ == "__main__":
    main()
