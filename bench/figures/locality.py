#!/usr/bin/env python3
"""What locality buffering costs: a program that does nothing with its packets, with the library in front of libpcap and
without, from a file in the page cache and, for root, from a virtual cable. The difference of CPU time per packet is the cost.

    make shim
    bench/figures/locality.py target/release/libflowgauge_pcap.so [file|interface|instructions [PACKETS]]

Prints tables; instructions are those of a packet, by callgrind. Packets have 700 bytes, to so many ports in no order. On the cable 100,000 come in a second, the
sender has the first core and the program the second; a run that loses some is done again.
"""
import os
import random
import re
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time

LEN = 700
ROUNDS = 5
FILE_BUFFERS = 1000, 4000, 16000
CABLE_BUFFERS = 4000, 1000
RATE = 100000
VARIANTS = "zero-copy", "simple", "threaded"
PROGRAM = """
#include <pcap/pcap.h>
#include <stdlib.h>
static void nothing(u_char *user, const struct pcap_pkthdr *header, const u_char *data)
{
    (void)header, (void)data;
    ++*(unsigned long *)user;
}
int main(int count, char **arguments)
{
    char message[PCAP_ERRBUF_SIZE];
    unsigned long packets = 0;
    pcap_t *handle = NULL;
    if (count == 2)
        handle = pcap_open_offline(arguments[1], message);
    if (count == 3 && (handle = pcap_create("fg1", message)) != NULL &&
        (pcap_set_snaplen(handle, 65535) != 0 || pcap_set_timeout(handle, 100) != 0 ||
         pcap_set_buffer_size(handle, 16 << 20) != 0 || pcap_activate(handle) != 0))
        return 2;
    if (count == 3) {
        puts("ready");
        fflush(stdout);
    }
    while (count == 3 && packets < strtoul(arguments[2], NULL, 10))
        if (pcap_dispatch(handle, -1, nothing, (u_char *)&packets) < 0)
            return 2;
    if (count == 2 && (handle == NULL || pcap_loop(handle, -1, nothing, (u_char *)&packets) != 0))
        return 2;
    printf("%lu\\n", packets);
    pcap_close(handle);
    return 0;
}
"""
SENDER = """
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define AT_ONCE 50

/* Sends the frames of a pcap file, so many in a second. */
int main(int count, char **arguments)
{
    struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex("fg0")};
    static struct mmsghdr messages[AT_ONCE];
    static struct iovec parts[AT_ONCE];
    struct timespec start, now;
    int fd = socket(AF_PACKET, SOCK_RAW, 0);
    FILE *file = count == 3 ? fopen(arguments[1], "rb") : NULL;
    if (file == NULL || fd < 0 || bind(fd, (struct sockaddr *)&to, sizeof to) != 0)
        return 2;
    fseek(file, 0, SEEK_END);
    long len = ftell(file), at = 24, sent = 0;
    char *bytes = malloc(len);
    rewind(file);
    if (bytes == NULL || fread(bytes, 1, len, file) != (size_t)len)
        return 2;
    clock_gettime(CLOCK_MONOTONIC, &start);
    while (at < len) {
        int ready = 0;
        for (; ready < AT_ONCE && at < len; ready++) {
            unsigned caplen;
            memcpy(&caplen, bytes + at + 8, 4);
            parts[ready] = (struct iovec){bytes + at + 16, caplen};
            messages[ready].msg_hdr = (struct msghdr){.msg_iov = &parts[ready], .msg_iovlen = 1};
            at += 16 + caplen;
        }
        for (int done = 0; done < ready;) {
            int more = sendmmsg(fd, messages + done, ready - done, 0);
            if (more > 0)
                done += more;
        }
        sent += ready;
        do
            clock_gettime(CLOCK_MONOTONIC, &now);
        while ((now.tv_sec - start.tv_sec) * 1e9 + now.tv_nsec - start.tv_nsec < sent * 1e9 / atoi(arguments[2]));
    }
    return 0;
}
"""


def trace(path, packets, ports):
    chosen = random.Random(1)
    payload = bytes(LEN - 42)
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for number in range(packets):
            port = chosen.randrange(ports)
            head = struct.pack("<IIII", number // 1000000, number % 1000000, LEN, LEN)
            ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, LEN - 14, 0, 0x4000, 64, 17, 0, b"\x0a\0\0\1", b"\x0a\0\0\2")
            udp = struct.pack(">HHHH", 61000, port, LEN - 34, 0)
            file.write(head + b"\2\0\0\0\0\1\2\0\0\0\0\2\x08\0" + ip + udp + payload)


def seconds(command, environment, packets):
    """CPU time of a run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if int(done.stdout) != packets:
        sys.exit(f"{done.stdout.strip()} of {packets} packets")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def row(library, buffer, variants, nanoseconds):
    """Nanoseconds of a packet without the library, and what it adds by variant: medians of rounds in which all have their turn, as
    the machine is not equally fast all the time."""
    rounds = []
    for _ in range(ROUNDS):
        plain = nanoseconds({})
        rounds.append([plain])
        for variant in variants:
            environment = {
                "LD_PRELOAD": library,
                "FLOWGAUGE_LOCALITY_BUFFER": str(buffer),
                "FLOWGAUGE_LOCALITY_VARIANT": variant,
            }
            rounds[-1].append(nanoseconds(environment) - plain)
    return " | ".join(f"{statistics.median(column):.0f}" for column in zip(*rounds))


def compiled(folder, name, text):
    source, program = os.path.join(folder, name + ".c"), os.path.join(folder, name)
    with open(source, "w", encoding="utf-8") as file:
        file.write(text)
    subprocess.run(["cc", "-O2", "-o", program, source, "-lpcap"], check=True)
    return program


class Cable:
    """A network namespace with the two ends of a virtual cable."""

    def __init__(self):
        self.name = f"locality-{os.getpid()}"
        self.ip("netns", "add", self.name)
        self.ip("-n", self.name, "link", "add", "fg0", "type", "veth", "peer", "name", "fg1")
        self.inside = ["ip", "netns", "exec", self.name]
        subprocess.run([*self.inside, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"], check=True)
        for end in "fg0", "fg1":
            self.ip("-n", self.name, "link", "set", end, "up")

    def remove(self):
        self.ip("netns", "del", self.name)

    @staticmethod
    def ip(*arguments):
        subprocess.run(["ip", *arguments], check=True)

    def nanoseconds(self, program, sender, paths, environment, packets):
        """CPU time of a program that captures, per packet: what more packets of the second path take."""
        times = []
        for path, count in zip(paths, packets):
            usage, _ = self.run([program], sender, path, environment, count, RATE)
            times.append(usage.ru_utime + usage.ru_stime)
        return (times[1] - times[0]) * 1e9 / (packets[1] - packets[0])

    def run(self, program, sender, path, environment, packets, rate):
        """Has a program capture so many. Returns what it used, and what it said on standard error."""
        for _ in range(3):
            variables = [f"{name}={value}" for name, value in environment.items()]
            command = [*self.inside, "env", *variables, "taskset", "-c", "1", *program, "live", str(packets)]
            with tempfile.TemporaryFile() as said:
                reader = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True)
                reader.stdout.readline()
                subprocess.run([*self.inside, "taskset", "-c", "0", sender, path, str(rate)], check=True)
                # One that has lost packets would wait for them.
                ends = time.monotonic() + 10
                done, usage = 0, None
                while done == 0 and time.monotonic() < ends:
                    done, _, usage = os.wait4(reader.pid, os.WNOHANG)
                    time.sleep(0.01)
                said.seek(0)
                if done != 0:
                    return usage, said.read().decode()
            reader.kill()
            reader.wait()
        sys.exit("packets are lost each time: is the machine quiet?")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    library = os.path.abspath(sys.argv[1])
    only = sys.argv[2] if len(sys.argv) > 2 else None
    packets = int(sys.argv[3]) if len(sys.argv) > 3 else 250000
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(folder, "nothing", "#include <stdio.h>\n" + PROGRAM)
        if only == "instructions":
            return instructions(folder, program, library)
        if only != "interface":
            offline(folder, program, library, packets)
        if only != "file" and os.geteuid() == 0:
            live(folder, program, library, packets)


def offline(folder, program, library, packets):
    print("| ports | buffer | libpcap, ns | simple, ns more | threaded, ns more |")
    print("|---|---|---|---|---|")
    for ports in 1, 16, 256, 4096, 65536:
        path = os.path.join(folder, "trace.pcap")
        trace(path, packets, ports)

        def once(environment):
            return seconds([program, path], environment, packets) * 1e9 / packets

        for buffer in FILE_BUFFERS:
            print(f"| {ports} | {buffer} | {row(library, buffer, VARIANTS[1:], once)} |", flush=True)


def instructions(folder, program, library):
    counts = 20000, 80000
    callgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program]
    sender, cable = compiled(folder, "sender", SENDER), Cable()
    try:
        print("| from, ports | libpcap | " + " | ".join(VARIANTS[:2]) + " |\n|---|---|---|---|")
        for ports in 256, 65536:
            paths = [os.path.join(folder, f"{count}.pcap") for count in counts]
            for path, count in zip(paths, counts):
                trace(path, count, ports)
            for place in "interface", "file":
                cells = []
                for variant in (None, *VARIANTS[:2]):
                    environment = {"LD_PRELOAD": library, "FLOWGAUGE_LOCALITY_VARIANT": variant} if variant else {}
                    found = []
                    for path, count in zip(paths, counts):
                        if place == "interface":
                            said = cable.run(callgrind, sender, path, environment, count, RATE // 7)[1]
                        else:
                            all_of_it = {**os.environ, **environment}
                            said = subprocess.run([*callgrind, path], env=all_of_it, capture_output=True, text=True, check=True).stderr
                        found.append(int(re.search(r"Collected : (\d+)", said)[1]))
                    cells.append(f"{(found[1] - found[0]) / (counts[1] - counts[0]):.0f}")
                print(f"| {place}, {ports} | " + " | ".join(cells) + " |", flush=True)
    finally:
        cable.remove()


def live(folder, program, library, packets):
    cable = Cable()
    try:
        sender = compiled(folder, "sender", SENDER)
        print("\n| interface: ports | buffer | libpcap, ns | zero-copy, ns more | simple, ns more | threaded, ns more |")
        print("|---|---|---|---|---|---|")
        for ports in 1, 256, 65536:
            counts = packets // 5, packets
            paths = [os.path.join(folder, f"{count}.pcap") for count in counts]
            for path, count in zip(paths, counts):
                trace(path, count, ports)

            def once(environment):
                return cable.nanoseconds(program, sender, paths, environment, counts)

            for buffer in CABLE_BUFFERS:
                print(f"| {ports} | {buffer} | {row(library, buffer, VARIANTS, once)} |", flush=True)
    finally:
        cable.remove()


if __name__ == "__main__":
    main()
