#!/usr/bin/env python3
"""Flow records a second through one broker of Kafka, to four consumers of a group, of which one is killed in the middle.

    xtask/setup.sh build test && cargo build --release -p flowgauge-cli
    bench/figures/kafka.py target/release/flowgauge [MILLIONS]

Prints the table of docs/kafka.md. Broker, producer and consumers are processes on this machine, on loopback without TLS; it ends
those that it started.
"""
import glob
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import plot

PARTITIONS = 8
MEMBERS = 4
TRACE = ["syn", "-q", "--seed", "1"]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Broker:
    """One that makes topics when they are first asked for."""

    def __init__(self, folder):
        cache = os.environ.get("FLOWGAUGE_CACHE") or os.path.expanduser("~/.cache/flowgauge")
        jars = os.path.join(cache, "kafka-4.3.1")
        if not glob.glob(jars + "/kafka_*.jar"):
            sys.exit(f"no Kafka in {jars}: run xtask/setup.sh test")
        plain, controller = free_port(), free_port()
        self.address = f"127.0.0.1:{plain}"
        properties = os.path.join(folder, "properties")
        with open(properties, "w", encoding="utf-8") as file:
            file.write(
                f"process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n"
                f"controller.listener.names=CONTROLLER\nlisteners=PLAIN://{self.address},CONTROLLER://127.0.0.1:{controller}\n"
                f"advertised.listeners=PLAIN://{self.address}\ninter.broker.listener.name=PLAIN\n"
                "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAIN:PLAINTEXT\n"
                f"log.dirs={folder}/data\nnum.partitions={PARTITIONS}\noffsets.topic.num.partitions=1\n"
                "offsets.topic.replication.factor=1\ngroup.initial.rebalance.delay.ms=0\n"
            )
        java = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-cp", jars + "/*"]
        form = ["kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", properties]
        subprocess.run(java + form, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.process = subprocess.Popen(
            [*java, "kafka.Kafka", properties], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while True:
            try:
                socket.create_connection(("127.0.0.1", plain), 1).close()
                return
            except OSError:
                time.sleep(0.1)

    def seconds(self):
        return cpu(self.process.pid)

    def end(self):
        self.process.kill()
        self.process.wait()


def cpu(pid):
    """Processor time of a process, in seconds."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Member:
    """A consumer; how many records it has counted, as it says each second, and in the end the rows of its input."""

    def __init__(self, program, stack):
        self.process = subprocess.Popen(
            [program, "stack", "run", "--json", "--watch=1", "-e", stack],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        self.rows, self.partitions, self.seconds = {}, 0, 0.0
        self.counted, self.grew = 0, time.monotonic()
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self):
        for line in self.process.stderr:
            if "partitions here" in line:
                self.partitions = int(re.search(r": (\d+) partitions here", line)[1])
            elif line.startswith("{"):
                said = json.loads(line)
                if said["component"] == "count" and said["result"] > self.counted:
                    self.counted, self.grew = said["result"], time.monotonic()

    def take(self, said):
        if said.get("component") == "input" and said.get("row"):
            row = said["row"]
            self.rows[row["sender"]] = (row["before"] + row["received"] + row["lost"], row)

    def end(self, how=signal.SIGINT):
        self.seconds = cpu(self.process.pid)
        self.process.send_signal(how)
        for line in self.process.stdout:
            self.take(json.loads(line))
        self.process.wait()


def account(members):
    latest = {}
    for member in members:
        for name, (total, _) in member.rows.items():
            latest[name] = max(latest.get(name, 0), total)
    return sum(latest.values())


def run(program, broker, capture, topic, times, kills):
    """Records, seconds until all were taken (without and with what a killed member's partitions waited), processor times."""
    place = f'kafka = "{broker.address}", topic = {topic}, plain = yes'
    stack = f"input {{ {place}, group = g, type = flow }} - count"
    # A first producer without records makes the topic.
    subprocess.run(
        [program, "stack", "run", "-q", "-r", capture, "-e", f"filter {{ less 1 }} flows output {{ {place} }}"],
        check=True, stdout=subprocess.DEVNULL,
    )
    members = [Member(program, stack) for _ in range(MEMBERS)]
    while any(member.partitions != PARTITIONS // MEMBERS for member in members):
        if any(member.process.poll() is not None for member in members):
            sys.exit("a consumer ended")
        time.sleep(0.1)
    before, started = broker.seconds(), time.monotonic()
    sent, killed, used = 0, None, 0.0
    for turn in range(times):
        producer = subprocess.Popen(
            [program, "stack", "run", "-q", "-r", capture, "-e", f"flows output {{ {place} }}"],
            stdout=subprocess.PIPE, text=True,
        )
        if kills and turn == times // 2:
            time.sleep(0.3)
            killed = members.pop()
            killed.end(signal.SIGKILL)
        for line in producer.stdout:
            said = json.loads(line)
            if said["component"] == "output":
                sent += said["value"]
        if producer.wait() != 0:
            sys.exit("a producer failed")
    produced = time.monotonic() - started
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    # One that was killed was waited for, too.
    used = used.ru_utime + used.ru_stime - (killed.seconds if killed else 0)
    # Longer than the partitions of one that was killed wait.
    while time.monotonic() - max(member.grew for member in members) < 15:
        time.sleep(0.1)
    took = max(member.grew for member in members) - started
    broker_used = broker.seconds() - before
    for member in members:
        member.end()
    if account(members) != sent:
        sys.exit(f"{account(members)} records taken, {sent} sent")
    taken = sum(member.seconds for member in [*members, *filter(None, [killed])])
    return sent, produced, took, broker_used, taken, used


def main():
    program = os.path.abspath(sys.argv[1])
    millions = int(sys.argv[2]) if len(sys.argv) > 2 else 6
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        capture = os.path.join(folder, "trace.pcap")
        subprocess.run([program, "generate", *TRACE, "-w", capture], check=True)
        broker = Broker(folder)
        try:
            for kills in [False, True]:
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                before = before.ru_utime + before.ru_stime
                name = "killed" if kills else "calm"
                sent, produced, took, of_broker, of_members, used = run(program, broker, capture, name, millions, kills)
                rows.append([
                    "one of four killed (SIGKILL)" if kills else "four consumers",
                    f"{sent:,}", f"{produced:.1f}", f"{took:.1f}", f"{round(sent / took, -3):,.0f}",
                    f"{(used - before):.1f}", f"{of_broker:.1f}", f"{of_members:.1f}", "exact",
                ])
        finally:
            broker.end()
    head = ["run", "records", "all sent after, s", "all taken after, s", "records/s", "producer, CPU s", "broker, CPU s",
            "consumers, CPU s", "account"]
    print(plot.table(head, rows))


if __name__ == "__main__":
    main()
