#!/usr/bin/env python3
"""What flows of a sensor cost: millions of instructions by callgrind, for 60,000 packets of `mix`: of what the device's thread
does with packets (`Runner::step`), and of the whole process, flows opened and read and the sensor started and stopped.

Usage: sensor.py FLOWGAUGE (a release build). Needs valgrind.
       sensor.py FLOWGAUGE --programs: `log`, a program with libscap, and both on one interface, of the device's thread alone. As
       root: it makes a network namespace.
       sensor.py FLOWGAUGE --live PCAP_FILTERS: 64 flows with different filters on an interface against 64 processes of tcpdump
       and 64 handles of libpcap in one process (bench/peers/pcap_filters.c), with CPU seconds. As root: it makes a network
       namespace.
"""
import json
import os
import re
import socket
import struct
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


def counted(program, folder, device):
    """A sensor in callgrind, with this device and stacks. Returns it, and a connection to it."""
    path = os.path.join(folder, "socket")
    config = os.path.join(folder, "sensor.toml")
    with open(config, "w") as file:
        file.write(f'socket = "{path}"\nuser = "root"\n{device}')
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/callgrind"]
    command += [program, "sensor", "run", "--config", config]
    sensor = subprocess.Popen(command, stderr=subprocess.PIPE)
    while not os.path.exists(path) and sensor.poll() is None:
        time.sleep(0.1)
    return sensor, connect(path)


def instructions(folder, of):
    """Millions of instructions in a function and what it calls."""
    command = ["callgrind_annotate", "--inclusive=yes", os.path.join(folder, "callgrind")]
    shown = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    found = re.search(r"([\d,]+) \(.*" + of, shown)
    return int(found.group(1).replace(",", "")) / 1e6


def cost(program, folder, stacks, always=""):
    path = os.path.join(folder, "socket")
    device = f'[devices.mix]\nfiles = ["{folder}/mix.pcap"]\nhold = true\n{always}'
    sensor, control = counted(program, folder, device)
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
    step = instructions(folder, "::Runner::step ")
    return "%.1f, in all %.1f" % (step, int(re.search(r"Collected : (\d+)", said).group(1)) / 1e6)


# What a program with libscap asks for that says nothing.
WANTED = {"filter": None, "mode": "wait", "cutoff": 2**64 - 1, "from_initiator": None}
WANTED |= {"from_responder": None, "cutoffs": [], "chunk_bytes": 16384, "overlap_bytes": 0}
WANTED |= {"flush_timeout": None, "priority": 0, "priorities": [], "inactivity_timeout": None}
CAPTURE = {"interface": "vb", "program": "figure", "memory": 512 << 20, "least_memory": 1 << 20}
CAPTURE |= {"thresholds": {"base": 0.5, "overload_cutoff": None}, "packets": False, "data": True}


def cost_of_programs(program, folder, frames, log, programs):
    """Of the device's thread, with frames that come by an interface. Programs do not read: there is room for all."""
    device = '[devices.vb]\ninterface = "vb"\nbuffer = "256M"\n'
    if log:
        device += '[stacks.log]\nstack = "%s"\n' % (BOTH["log"] % folder)
    sensor, control = counted(program, folder, device)
    users = [connect(os.path.join(folder, "socket")) for _ in range(programs)]
    for user in users:
        answer = ask(user, do="capture", **CAPTURE, wanted=WANTED)
        assert "capture" in answer, answer
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sender.bind(("va", 0))
    for frame in frames:
        sender.send(frame)
    while True:
        shown = ask(control, do="status")["status"]["devices"][0]
        if shown.get("delivered", 0) >= len(frames):
            break
        time.sleep(0.2)
    lost = [it["statistics"]["lost_to_ring"] for it in shown["sharing"]["programs"]]
    ask(control, do="stop")
    sensor.communicate()
    return "%.1f, %d packets lost, %s" % (
        instructions(folder, "::Work::read "),
        shown["packets"] - shown["delivered"],
        lost or "no program",
    )


def compare_programs(program):
    in_namespace()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        frames = frames_of(program, folder)
        for log, programs in ((True, 0), (False, 1), (True, 1), (False, 2)):
            said = cost_of_programs(program, folder, frames, log, programs)
            print("log," if log else "no log,", programs, "programs:", said)


BOTH = {"flows": "flows - output { file = %s/flows }", "log": "transactions - output { file = %s/log }"}


def as_command(program, folder):
    """The same two stacks without a sensor."""
    stacks = os.path.join(folder, "both.stack")
    with open(stacks, "w") as file:
        for name, stack in BOTH.items():
            file.write(f"[stack {name}]\n{stack % folder}\n")
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program]
    command += ["stack", "run", "-r", os.path.join(folder, "mix.pcap"), "-f", stacks]
    said = subprocess.run(command, capture_output=True, check=True).stderr.decode()
    return "%.1f" % (int(re.search(r"Collected : (\d+)", said).group(1)) / 1e6)


def different():
    """64 filters of a port each, and 64 of five-tuples."""
    ports = ["tcp port %d" % port for port in range(80, 144)]
    tuples = []
    for number in range(64):
        server, port = number // 8 + 1, (80, 443)[number % 2]
        client = "10.%d.0.0/14" % (16 + number % 8 // 2 * 4)
        tuples.append("tcp and host 198.18.0.%d and port %d and net %s" % (server, port, client))
    return ports, tuples


def arbitrary():
    """64 filters of all kinds; most match 1 to 60 % of the packets."""
    filters = []
    for n in range(8):
        flags = ("tcp-syn|tcp-fin", "tcp-push")[n % 2]
        port = (443, 80)[n % 2]
        filters += [
            "host 198.18.0.%d" % (n + 1),
            "net 10.%d.0.0/%d" % (16 + n // 2 * 4, 14 + n % 2),
            "tcp portrange %d-%d or udp port 53" % (20000 + 50 * n, 20200 + 100 * n),
            "tcp[tcpflags] & (%s) != 0 and not port %d" % (flags, 80 + n),
            "len > %d or (udp and len < %d)" % (1400 - 120 * n, 100 + 20 * n),
            "(ip[8] > %d and src net 198.18.0.0/%d) or vlan %d" % (40 + n, 24 + n % 4, n),
            "not (tcp dst port %d or src host 10.2%d.1.1) and greater %d" % (port, n, 700 + 90 * n),
            "ip[2:2] - ((ip[0] & 15) << 2) > %d and dst net 10.%d.0.0/14" % (100 * n, 16 + n // 2 * 4),
        ]
    return filters


def packets_of(path):
    """The frames of a capture with microseconds in this machine's order."""
    with open(path, "rb") as file:
        file.read(24)
        while header := file.read(16):
            yield file.read(struct.unpack("=4I", header)[2])


def live(name, frames, start):
    """Sends frames to an interface while what `start` starts looks at it. Prints the CPU seconds."""
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sender.bind(("va", 0))
    before = os.times()
    children, stop = start()
    time.sleep(1)
    sending = os.times()
    begin = time.monotonic()
    for number, frame in enumerate(frames):
        sender.send(frame)
        if number % 50 == 49:
            # 20,000 packets a second.
            time.sleep(max(0, begin + number / 20_000 - time.monotonic()))
    sent = os.times()
    time.sleep(1)
    stop()
    said = [child.communicate()[1 if name == "tcpdump" else 0] for child in children]
    after = os.times()
    used = after.children_user + after.children_system
    used -= before.children_user + before.children_system
    sends = sent.user + sent.system - sending.user - sending.system
    said = (said[0].strip().splitlines() or [""])[-1]
    print(f"{name}: {used:.2f} s, the sender with filters in the kernel {sends:.2f} s; {said}")


def in_namespace():
    """Goes on in a network namespace of its own, with the interfaces va and vb."""
    if "IN_NAMESPACE" not in os.environ:
        command = ["unshare", "-n", sys.executable, *sys.argv]
        os.execvpe("unshare", command, {**os.environ, "IN_NAMESPACE": "1"})
    for command in (
        "ip link add va type veth peer name vb",
        "sysctl -qw net.ipv6.conf.all.disable_ipv6=1",
        "ip link set va up",
        "ip link set vb up",
    ):
        subprocess.run(command.split(), check=True)


def frames_of(program, folder):
    """60,000 of `mix`."""
    trace = os.path.join(folder, "mix.pcap")
    options = ["--preset", "mix", "--seed", "1", "--packets", "60000"]
    command = [program, "generate", *options, "-w", trace]
    subprocess.run(command, check=True, capture_output=True)
    return list(packets_of(trace))[:60000]


def compare_live(program, peer):
    in_namespace()
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with tempfile.TemporaryDirectory() as folder:
        frames = frames_of(program, folder)
        for kind, filters in (("ports", different()[0]), ("arbitrary", arbitrary())):

            def tcpdumps():
                command = ["tcpdump", "-i", "vb", "-n", "-w", "/dev/null"]
                children = [subprocess.Popen([*command, it], **pipes) for it in filters]
                return children, lambda: [child.terminate() for child in children]

            def handles():
                child = subprocess.Popen([peer, "vb", *filters], **pipes)
                child.stdout.readline()
                return [child], child.terminate

            def sensor():
                path = os.path.join(folder, "socket")
                config = os.path.join(folder, "sensor.toml")
                with open(config, "w") as file:
                    file.write(f'socket = "{path}"\nuser = "root"\n[devices.vb]\n')
                child = subprocess.Popen([program, "sensor", "run", "--config", config], **pipes)
                while not os.path.exists(path):
                    time.sleep(0.1)
                users, took = [], []
                for it in filters:
                    user, begin = connect(path), time.monotonic()
                    answer = ask(user, do="open", device="vb", stack='filter { "%s" } count bytes' % it)
                    took.append(time.monotonic() - begin)
                    users.append((user, answer["flow"]))
                print(f"  a flow opens in {1e3 * sum(took) / 64:.1f} ms, at most {1e3 * max(took):.1f} ms")

                def stop():
                    of = [ask(user, do="results", flow=flow)["results"] for user, flow in users]
                    print("  packets that match:", sum(int(it["components"][1]["value"]) for it in of))
                    ask(users[0][0], do="stop")

                return [child], stop

            print(f"64 filters, {kind}:")
            for name, start in (("tcpdump", tcpdumps), ("libpcap", handles), ("sensor", sensor)):
                live(name, frames, start)


def main():
    program = os.path.abspath(sys.argv[1])
    if sys.argv[2:3] == ["--programs"]:
        return compare_programs(program)
    if sys.argv[2:3] == ["--live"]:
        return compare_live(program, os.path.abspath(sys.argv[3]))
    flow = "filter {{ {} }} count bytes".format
    equal = flow("tcp port 80")
    ports, tuples = different()
    with tempfile.TemporaryDirectory() as folder:
        # The sensor gives up root.
        os.chmod(folder, 0o777)
        both = BOTH.items()
        both = "".join('[stacks.%s]\nstack = "%s"\n' % (name, it % folder) for name, it in both)
        trace = os.path.join(folder, "mix.pcap")
        options = ["--preset", "mix", "--seed", "1", "--packets", "200000"]
        subprocess.run([program, "generate", *options, "-w", trace + ".all"], check=True)
        subprocess.run(
            [program, "capture", "-q", "-r", trace + ".all", "-c", "60000", "-w", trace], check=True
        )
        print("no flow", cost(program, folder, []))
        for count in (1, 8, 64):
            print(count, "equal flows", cost(program, folder, [equal] * count))
        print("64 filters", cost(program, folder, [flow(port) for port in ports]))
        tails = [equal.replace("count", "sample { %d } count" % it) for it in range(2, 66)]
        print("64 flows of one filter that go on differently", cost(program, folder, tails))
        print("1 filter of a five-tuple", cost(program, folder, [flow(tuples[0])]))
        print("64 filters of five-tuples", cost(program, folder, [flow(it) for it in tuples]))
        quoted = ['filter { "%s" } count bytes' % it for it in arbitrary()]
        print("64 arbitrary filters", cost(program, folder, quoted))
        print("flows and log always", cost(program, folder, [], both))
        for name in BOTH:
            os.remove(os.path.join(folder, name))
        print("the same as a command", as_command(program, folder))


main()
