#!/usr/bin/env python3
"""What locality buffering costs: a program that does nothing with its packets, with the library in front of libpcap and
without, from a file in the page cache. The difference of CPU time per packet is the cost.

    make shim
    bench/figures/locality.py target/release/libflowgauge_pcap.so [PACKETS]

Prints a table. Packets have 700 bytes, to so many ports in no order.
"""
import os
import random
import resource
import struct
import subprocess
import sys
import tempfile

LEN = 700
ROUNDS = 7
PROGRAM = """
#include <pcap/pcap.h>
static void nothing(u_char *user, const struct pcap_pkthdr *header, const u_char *data)
{
    (void)header, (void)data;
    ++*(unsigned long *)user;
}
int main(int count, char **arguments)
{
    char message[PCAP_ERRBUF_SIZE];
    unsigned long packets = 0;
    pcap_t *handle = count == 2 ? pcap_open_offline(arguments[1], message) : NULL;
    if (handle == NULL || pcap_loop(handle, -1, nothing, (u_char *)&packets) != 0)
        return 2;
    printf("%lu\\n", packets);
    pcap_close(handle);
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


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    library = os.path.abspath(sys.argv[1])
    packets = int(sys.argv[2]) if len(sys.argv) > 2 else 500000
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "nothing.c"), os.path.join(folder, "nothing")
        with open(source, "w", encoding="utf-8") as file:
            file.write("#include <stdio.h>\n" + PROGRAM)
        subprocess.run(["cc", "-O2", "-o", program, source, "-lpcap"], check=True)
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


if __name__ == "__main__":
    main()
