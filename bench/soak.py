#!/usr/bin/env python3
"""Lets users come and go on a sensor for a while, and says what is left of them.

Traffic of `mix` goes round and round over a virtual cable in a network namespace of its own, to an interface of a sensor with
`flows` and `transactions` always running. Sixteen processes open and close flows some twenty times a second all in all, read their
results, and one of them is killed now and then. At the end flows, descriptors and mapped memory are those of the beginning, the
ledger is balanced, and resident memory is what it was when all had warmed up, but for a tenth.

Usage: soak.py FLOWGAUGE [MINUTES [PACKETS PER SECOND]] (root; a release build; 30 minutes, 20,000 packets per second).
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

CLIENTS = 16
PER_SECOND = 20
STACKS = [
    "count bytes",
    "filter { tcp port %d } count bytes",
    "filter { udp } bytes distribution { of = bytes, min = 0, max = 1500, interval = 100 }",
    "filter { host 10.0.%d.1 } count",
    "top { by = ip.src, count = 10 }",
    "flows - discard",
    "transactions - discard",
    "expired_flows { flows = 100 }",
    "hash_sample { range = %d } count",
    "cook count",
    "to_buffer",
    "burst { min = 0, max = 1500, step = 500 }",
]


def connect(path):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(60)
    connection.connect(path)
    return connection


def ask(connection, **request):
    connection.send(json.dumps(request).encode())
    answer = b""
    while True:
        part, files, _, _ = socket.recv_fds(connection, 1 << 17, 16)
        for file in files:
            os.close(file)
        answer += part[1:]
        if part[:1] != b"+":
            return json.loads(answer)


def client(path, seed):
    """Opens and closes flows until it is killed."""
    rng = random.Random(seed)
    connection, flows = connect(path), []
    while True:
        if len(flows) < 8 and rng.random() < 0.6:
            stack = rng.choice(STACKS)
            if "%d" in stack:
                stack = stack % rng.randrange(1, 200)
            answer = ask(connection, do="open", device="cable", stack=stack)
            assert "flow" in answer, (stack, answer)
            flows.append(answer["flow"]["number"])
        elif flows:
            flow = flows.pop(rng.randrange(len(flows)))
            answer = ask(connection, do="close", flow=flow)
            assert answer.get("results", {}).get("failure", answer) is None, answer
        if flows:
            answer = ask(connection, do="results", flow=rng.choice(flows))
            assert answer.get("results", {}).get("failure", answer) is None, answer
        if rng.random() < 0.02:
            connection.close()
            connection, flows = connect(path), []
        time.sleep(rng.random() * 2 * CLIENTS / PER_SECOND)


def sender(path, rate):
    """Sends the packets of a capture again and again."""
    with open(path, "rb") as file:
        data = file.read()
    frames, at = [], 24
    while at < len(data):
        length = int.from_bytes(data[at + 8 : at + 12], "little")
        frames.append(data[at + 16 : at + 16 + length])
        at += 16 + length
    cable = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    cable.bind(("ga", 0))
    began, sent = time.monotonic(), 0
    while True:
        cable.send(frames[sent % len(frames)])
        sent += 1
        if sent % 100 == 0:
            time.sleep(max(0, began + sent / rate - time.monotonic()))


def of_process(process):
    """Descriptors, mapped files of shared memory, and resident bytes."""
    folder = f"/proc/{process}"
    with open(f"{folder}/maps") as maps:
        shared = sum("memfd:" in line for line in maps)
    with open(f"{folder}/statm") as statm:
        resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    return len(os.listdir(f"{folder}/fd")), shared, resident


def spawn(*arguments):
    return subprocess.Popen([sys.executable, __file__, *map(str, arguments)])


def soak(program, minutes, rate):
    subprocess.run("ip link add ga type veth peer name gb && ip link set ga up mtu 9000 && ip link set gb up mtu 9000", shell=True, check=True)
    with tempfile.TemporaryDirectory() as folder:
        trace, path = f"{folder}/mix.pcap", f"{folder}/socket"
        options = ["--preset", "mix", "--seed", "1", "--packets", "50000"]
        subprocess.run([program, "generate", *options, "-w", trace], check=True, stdout=subprocess.DEVNULL)
        with open(f"{folder}/sensor.toml", "w") as file:
            file.write(f'socket = "{path}"\nuser = "root"\n[devices.cable]\ninterface = "gb"\n')
            file.write('[stacks.a]\nstack = "flows - discard"\n[stacks.b]\nstack = "transactions - discard"\n')
        sensor = subprocess.Popen([program, "sensor", "run", "--config", f"{folder}/sensor.toml"])
        while not os.path.exists(path) and sensor.poll() is None:
            time.sleep(0.1)
        control = connect(path)
        # The memory of a user's packets stays while the user has connections.
        flow = ask(control, do="open", device="cable", stack="to_buffer")["flow"]["number"]
        ask(control, do="close", flow=flow)
        before = of_process(sensor.pid)
        others = [spawn("sender", trace, rate)]
        clients = [spawn("client", path, number) for number in range(CLIENTS)]
        rng, killed, warm = random.Random(0), 0, 0
        began = time.monotonic()
        try:
            while time.monotonic() - began < 60 * minutes:
                time.sleep(5)
                number = rng.randrange(CLIENTS)
                assert all(one.poll() is None for one in clients), "a client failed"
                clients[number].kill()
                clients[number].wait()
                killed += 1
                clients[number] = spawn("client", path, CLIENTS + killed)
                status = ask(control, do="status")["status"]
                device = status["devices"][0]
                descriptors, shared, resident = of_process(sensor.pid)
                flows = sum(len(stack["flows"]) for stack in device["stacks"])
                seconds = int(time.monotonic() - began)
                if seconds >= 12 * minutes and not warm:
                    warm = resident
                if killed % 6 == 1:
                    print(f"{seconds} s: {device['packets']} packets, {device['refused']}, {flows} flows, {descriptors} descriptors, "
                          f"{shared} mappings, {resident >> 20} MB", flush=True)
        finally:
            for one in clients + others:
                one.kill()
                one.wait()
        time.sleep(15)
        status = ask(control, do="status")["status"]
        device = status["devices"][0]
        after = of_process(sensor.pid)
        flows = sum(len(stack["flows"]) for stack in device["stacks"])
        print(f"before {before}, warm {warm >> 20} MB, after {after}, {flows} flows, {killed} clients killed, {device}")
        assert flows == 0
        assert after[:2] == before[:2], "descriptors or mappings are left"
        assert device["packets"] == device["delivered"] + sum(device["refused"].values()), "the ledger is not balanced"
        assert after[2] <= 1.1 * max(warm, before[2]), "memory grows"
        assert all(stack["failure"] is None for stack in device["stacks"])
        sensor.send_signal(signal.SIGTERM)
        assert sensor.wait(60) == 0


def main():
    if sys.argv[1] == "client":
        client(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1] == "sender":
        sender(sys.argv[2], float(sys.argv[3]))
    elif sys.argv[1] == "soak":
        soak(sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))
    else:
        program = os.path.abspath(sys.argv[1])
        minutes, rate = (sys.argv[2:] + ["30", "20000"][len(sys.argv) - 2 :])[:2]
        command = ["unshare", "--net", sys.executable, os.path.abspath(__file__), "soak", program, minutes, rate]
        sys.exit(subprocess.run(command).returncode)


main()
