#!/usr/bin/env python3
"""What locality buffering costs: a program that does nothing with its packets, with the library in front of libpcap and
without, from a file in the page cache and, for root, from a virtual cable. The difference of CPU time per packet is the cost.

    make shim
    bench/figures/locality.py target/release/libflowgauge_pcap.so [PACKETS]

Prints tables. Packets have 700 bytes, to so many ports in no order. On the cable 100,000 come in a second; a run that loses some
is done again.
"""
import os
import random
import resource
import struct
import subprocess
import sys
import tempfile
import time

LEN = 700
ROUNDS = 7
RATE = 100000
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


def nanoseconds(command, environment, packets):
    """The least CPU time of a run, per packet."""
    best = None
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if int(done.stdout) != packets:
            sys.exit(f"{done.stdout.strip()} of {packets} packets")
        took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        best = min(best or took, took)
    return best * 1e9 / packets


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
        times = [self.seconds(program, sender, path, environment, count) for path, count in zip(paths, packets)]
        return (times[1] - times[0]) * 1e9 / (packets[1] - packets[0])

    def seconds(self, program, sender, path, environment, packets):
        """The least CPU time of a program that captures so many."""
        best, rounds = None, 0
        for _ in range(3 * ROUNDS):
            if rounds == ROUNDS:
                break
            variables = [f"{name}={value}" for name, value in environment.items()]
            command = [*self.inside, "env", *variables, program, "live", str(packets)]
            reader = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            reader.stdout.readline()
            subprocess.run([*self.inside, sender, path, str(RATE)], check=True)
            # One that has lost packets would wait for them.
            ends = time.monotonic() + 5
            done, usage = 0, None
            while done == 0 and time.monotonic() < ends:
                done, _, usage = os.wait4(reader.pid, os.WNOHANG)
                time.sleep(0.01)
            if done == 0:
                reader.kill()
                reader.wait()
                continue
            took = usage.ru_utime + usage.ru_stime
            best = min(best or took, took)
            rounds += 1
        if best is None:
            sys.exit("packets are lost each time: is the machine quiet?")
        return best


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    library = os.path.abspath(sys.argv[1])
    packets = int(sys.argv[2]) if len(sys.argv) > 2 else 500000
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(folder, "nothing", "#include <stdio.h>\n" + PROGRAM)
        print("| ports | buffer | libpcap, ns | simple, ns more | threaded, ns more |")
        print("|---|---|---|---|---|")
        for ports in 1, 16, 256, 4096, 65536:
            path = os.path.join(folder, "trace.pcap")
            trace(path, packets, ports)
            plain = nanoseconds([program, path], {}, packets)
            for buffer in 1000, 4000, 16000:
                more = []
                for variant in "simple", "threaded":
                    environment = {
                        "LD_PRELOAD": library,
                        "FLOWGAUGE_LOCALITY_BUFFER": str(buffer),
                        "FLOWGAUGE_LOCALITY_VARIANT": variant,
                    }
                    more.append(nanoseconds([program, path], environment, packets) - plain)
                print(f"| {ports} | {buffer} | {plain:.0f} | {more[0]:.0f} | {more[1]:.0f} |", flush=True)
        if os.geteuid() == 0:
            live(folder, program, library, packets)


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
            plain = cable.nanoseconds(program, sender, paths, {}, counts)
            for buffer in 1000, 4000:
                more = []
                for variant in "zero-copy", "simple", "threaded":
                    environment = {
                        "LD_PRELOAD": library,
                        "FLOWGAUGE_LOCALITY_BUFFER": str(buffer),
                        "FLOWGAUGE_LOCALITY_VARIANT": variant,
                    }
                    more.append(cable.nanoseconds(program, sender, paths, environment, counts) - plain)
                print(f"| {ports} | {buffer} | {plain:.0f} | " + " | ".join(f"{it:.0f}" for it in more) + " |", flush=True)
    finally:
        cable.remove()


if __name__ == "__main__":
    main()
