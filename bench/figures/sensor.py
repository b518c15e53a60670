#!/usr/bin/env python3
"""What flows of a sensor cost: millions of instructions by callgrind, for 60,000 packets of `mix`.

Usage: sensor.py FLOWGAUGE (a release build). Needs valgrind.
"""
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time


def connect(path):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    while True:
        try:
            connection.connect(path)
            return connection
        except (ConnectionRefusedError, FileNotFoundError):
            time.sleep(0.1)


def ask(connection, **request):
    connection.send(json.dumps(request).encode())
    answer = b""
    while True:
        part = connection.recv(1 << 17)
        answer += part[1:]
        if part[:1] != b"+":
            return json.loads(answer)


def cost(program, folder, stacks, always=""):
    path = os.path.join(folder, "socket")
    config = os.path.join(folder, "sensor.toml")
    with open(config, "w") as file:
        file.write(f'socket = "{path}"\nuser = "root"\n[devices.mix]\n')
        file.write(f'files = ["{folder}/mix.pcap"]\nhold = true\n{always}')
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    command += [program, "sensor", "run", "--config", config]
    sensor = subprocess.Popen(command, stderr=subprocess.PIPE)
    while not os.path.exists(path) and sensor.poll() is None:
        time.sleep(0.1)
    control = connect(path)
    users = []
    for stack in stacks:
        user = connect(path)
        answer = ask(user, do="open", device="mix", stack=stack)
        assert "flow" in answer, answer
        users.append(user)
    ask(control, do="start", device="mix")
    while ask(control, do="status")["status"]["devices"][0]["state"] != "ended":
        time.sleep(0.2)
    ask(control, do="stop")
    said = sensor.communicate()[1].decode()
    return int(re.search(r"Collected : (\d+)", said).group(1)) / 1e6


def main():
    program = os.path.abspath(sys.argv[1])
    equal = "filter { tcp port 80 } count bytes"
    different = ["filter { tcp port %d } count bytes" % port for port in range(80, 144)]
    both = '[stacks.a]\nstack = "flows discard"\n[stacks.b]\nstack = "transactions discard"\n'
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "mix.pcap")
        options = ["--preset", "mix", "--seed", "1", "--packets", "200000"]
        subprocess.run([program, "generate", *options, "-w", trace + ".all"], check=True)
        subprocess.run(
            [program, "capture", "-q", "-r", trace + ".all", "-c", "60000", "-w", trace], check=True
        )
        print("no flow", cost(program, folder, []))
        for count in (1, 8, 64):
            print(count, "equal flows", cost(program, folder, [equal] * count))
        print("64 filters", cost(program, folder, different))
        print("flows and transactions always", cost(program, folder, [], both))


main()
