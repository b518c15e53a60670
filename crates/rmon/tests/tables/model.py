#!/usr/bin/env python3
"""RMON2's tables as a naive program keeps them: dictionaries from names to counters, each packet taken apart on its own.

It reads commands, a line each:

    begin TICK ROWS APPLICATIONS             sysUpTime is 0 then; most rows of hosts, and of pairs, by layer
    protocol IDENTIFIER LOCALINDEX COUNTED   of the directory; 1 if its hosts and pairs are counted
    packet TICK LENGTH LINKTYPE TAGGED DATA  1 if a VLAN tag was taken out of it; data behind an x, in hexadecimal
    objects MARK                             answered with what a manager sees: name type value, and an empty line
    state                                    answered with sysUpTime, and inserts and deletes of hosts and of pairs
"""
import sys

ETHERNET, RAW, SLL, IPV4, IPV6, SLL2 = 1, 101, 113, 228, 229, 276
ETHER2, LLC, SNAP, VSNAP = 1, 2, 3, 4
WILDCARD = bytes([1, 0, 0, 1])
TAGS = 0x8100, 0x88A8, 0x9100, 0x9200
VERSIONS = {0x0800: 4, 0x86DD: 6}
# ifIndex.7, behind its length.
SOURCE = "11.1.3.6.1.2.1.2.2.1.1.7"


def word(data, at):
    return int.from_bytes(data[at : at + 2], "big") if at + 2 <= len(data) else None


class Layers:
    """The layers of a packet, whatever is in the directory: numbers, and source and destination of those that have some; then the ports, the
    lower one first."""

    def __init__(self, link, tagged, data):
        self.found, self.ports = [], []
        if link == ETHERNET:
            at, kind = 14, word(data, 12)
        elif link == SLL:
            at, kind = 16, word(data, 14)
        elif link == SLL2:
            at, kind = 20, word(data, 0) if len(data) >= 20 else None
        elif link in (RAW, IPV4, IPV6):
            at, kind = 0, {4: 0x0800, 6: 0x86DD}.get(data[0] >> 4) if data else None
        else:
            return
        if kind is None:
            return
        if tagged:
            self.add(ETHER2)
            self.add(TAGS[0])
            if kind > 1500:
                self.ethernet(data, at, kind)
        elif kind > 1500:
            self.add(ETHER2)
            self.ethernet(data, at, kind)
        elif data[at : at + 3] == b"\xaa\xaa\x03":
            if data[at + 3 : at + 6] not in (b"\0\0\0", b"\0\0\xf8"):
                return self.add(VSNAP)
            self.add(SNAP)
            if (kind := word(data, at + 6)) is not None:
                self.ethernet(data, at + 8, kind)
        else:
            self.add(LLC)
            if len(data) >= at + 3:
                self.add(data[at])
                if data[at] == 6:
                    self.ip(data, at + 3, 4)

    def add(self, number, ends=None):
        self.found.append((number.to_bytes(4, "big"), ends))

    def ethernet(self, data, at, kind):
        if kind not in TAGS:
            return self.network(data, at, kind)
        # Tags of any number and kind are one layer.
        if self.found[-1][0] != TAGS[0].to_bytes(4, "big"):
            self.add(TAGS[0])
        inner = word(data, at + 2)
        if inner is not None and inner > 1500:
            self.ethernet(data, at + 4, inner)

    def network(self, data, at, kind):
        self.add(kind)
        if kind in VERSIONS:
            self.ip(data, at, VERSIONS[kind])

    def ip(self, data, at, version):
        head = data[at : at + (20 if version == 4 else 40)]
        if len(head) < (20 if version == 4 else 40) or head[0] >> 4 != version:
            return
        number, _ = self.found.pop()
        if version == 4:
            self.found.append((number, (head[12:16], head[16:20])))
            size, total, protocol = (head[0] & 15) * 4, word(head, 2), head[9]
            data = data[: at + total] if total else data
            if size >= 20 and not word(head, 6) & 0x1FFF and at + size <= len(data):
                self.transport(data, at + size, protocol)
            return
        self.found.append((number, (head[8:24], head[24:40])))
        length, protocol = word(head, 4), head[6]
        at += 40
        data = data[: at + length] if length else data
        while protocol in (0, 43, 44, 60, 135, 139, 140):
            if len(data) < at + (8 if protocol == 44 else 2):
                return
            if protocol == 44 and word(data, at + 2) & 0xFFF8:
                return
            size = 8 if protocol == 44 else 8 * (data[at + 1] + 1)
            # A message of its own, as nothing follows.
            if data[at] == 59 and protocol in (135, 139, 140):
                break
            if at + size > len(data):
                return
            protocol, at = data[at], at + size
        self.transport(data, at, protocol)

    def transport(self, data, at, protocol):
        self.add(protocol)
        one, other = word(data, at), word(data, at + 2)
        if protocol in (4, 41):
            self.ip(data, at, 4 if protocol == 4 else 6)
        elif other is None:
            return
        elif protocol in (6, 17, 132):
            self.ports = sorted((one, other))
        elif protocol == 47 and not one & 0x4007:
            behind = at + 4 + 4 * sum(one & bit != 0 for bit in (0x8000, 0x2000, 0x1000))
            if behind <= len(data):
                self.network(data, behind, other)


class Row:
    def __init__(self, counters, now):
        self.counters, self.created, self.stamp, self.used = [0] * counters, now, now, 0
        self.below = {}

    def add(self, counters, now):
        self.stamp = now
        self.counters = [known + more for known, more in zip(self.counters, counters)]


class Rows:
    """Rows by LocalIndex and addresses, with applications below each. The least recently used one goes."""

    def __init__(self, counters, most):
        self.counters, self.most, self.rows = counters, most, {}
        self.inserts, self.deletes = [0, 0], [0, 0]

    def touch(self, key, below, now, used):
        if key not in self.rows:
            while len(self.rows) >= self.most[0]:
                gone = self.rows.pop(min(self.rows, key=lambda other: self.rows[other].used))
                self.deletes[0] += 1
                self.deletes[1] += len(gone.below)
            self.rows[key] = Row(self.counters, now)
            self.inserts[0] += 1
        row = self.rows[key]
        row.used = used
        for local in below:
            if local not in row.below:
                while self.inserts[1] - self.deletes[1] >= self.most[1]:
                    all_below = ((one.used, local, key) for key, row in self.rows.items() for local, one in row.below.items())
                    _, oldest, above = min(all_below)
                    del self.rows[above].below[oldest]
                    self.deletes[1] += 1
                row.below[local] = Row(self.counters, now)
                self.inserts[1] += 1
            row.below[local].used = used
        return row

    def add(self, key, row, below, counters, now):
        # It may have gone for others of the same packet.
        if self.rows.get(key) is row:
            for one in [row] + [row.below[local] for local in below if local in row.below]:
                one.add(counters, now)


class Tables:
    def __init__(self, zero, *most):
        self.directory, self.counted = {}, set()
        self.zero, self.now, self.uses = zero, 0, 0
        self.dist, self.map = {}, {}
        self.hosts, self.pairs = Rows(5, most), Rows(2, most)

    def protocol(self, identifier, local, counted):
        self.directory[identifier] = local
        if counted:
            self.counted.add(local)

    def chains(self, layers):
        """Each encapsulation as far as the directory has it: by the packet's own base layer, and by the one for all."""
        base = layers.found[0][0]
        for first in [base] + [WILDCARD] * (base[3] != LLC):
            identifier, chain = b"", []
            for number, ends in layers.found:
                identifier += number if chain else first
                if identifier not in self.directory:
                    break
                chain.append((self.directory[identifier], ends))
            else:
                ports = (self.directory.get(identifier + port.to_bytes(4, "big")) for port in layers.ports)
                chain += [(local, None) for local in ports if local is not None][:1]
            yield chain

    def packet(self, tick, length, link, tagged, data):
        self.now = max(self.now, tick - self.zero)
        octets = max(length, 60) + 4
        layers = Layers(link, tagged, data)
        chains = list(self.chains(layers)) if layers.found else []
        for local in {local for chain in chains for local, _ in chain}:
            packets, sum_of_octets = self.dist.get(local, (0, 0))
            self.dist[local] = packets + 1, sum_of_octets + octets
        macs = data[:12] if link == ETHERNET and len(data) >= 12 else bytes(12)
        # Each chain from each of its network layers on, the outermost ones first.
        starts = [[at for at, (_, ends) in enumerate(chain) if ends] for chain in chains]
        used = []
        for level in range(max(map(len, starts), default=0)):
            for chain, at in ((chain, start[level]) for chain, start in zip(chains, starts) if level < len(start)):
                network, (source, destination) = chain[at]
                if network not in self.counted:
                    continue
                if level == 0 and any(macs[6:]) and self.map.get((network, source), [None])[0] != macs[6:]:
                    self.map[network, source] = macs[6:], self.now
                below = sorted(local for local, _ in chain[at:] if local in self.counted)
                for rows, key, counters in (
                    (self.hosts, (network, source), [0, 1, 0, octets, macs[0] & 1]),
                    (self.hosts, (network, destination), [1, 0, octets, 0, 0]),
                    (self.pairs, (network, source, destination), [1, octets]),
                ):
                    self.uses += 1
                    used.append((rows, key, rows.touch(key, below, self.now, self.uses), below, counters))
        for rows, *what in used:
            rows.add(*what, self.now)

    def objects(self, mark):
        def of(table, first, created, index, row):
            """Counters in the columns from the first one on, up to that of the creation."""
            if row.stamp >= mark:
                for column, counter in zip(range(first, created), row.counters):
                    yield f"{table}.{column}.{index} G {counter & 0xffffffff}"
                yield f"{table}.{created}.{index} T {row.created}"

        for local, counts in self.dist.items():
            for column in (1, 2):
                yield f"12.2.1.{column}.1.{local} G {counts[column - 1] & 0xffffffff}"
        for (network, address), (mac, stamp) in self.map.items():
            if stamp >= mark:
                index = f"{mark}.{network}.{octets_of(address)}.{SOURCE}"
                yield f"13.5.1.4.{index} X {mac.hex()}"
                yield f"13.5.1.5.{index} T {stamp}"
        for (network, address), row in self.hosts.rows.items():
            index = f"1.{mark}.{network}.{octets_of(address)}"
            yield from of("14.2.1", 3, 8, index, row)
            for local, below in row.below.items():
                yield from of("16.1.1", 2, 6, f"{index}.{local}", below)
        for (network, source, destination), row in self.pairs.rows.items():
            for tables, one, other in ((("15.2.1", "17.1.1"), source, destination), (("15.3.1", "17.2.1"), destination, source)):
                index = f"1.{mark}.{network}.{octets_of(one)}.{octets_of(other)}"
                yield from of(tables[0], 4, 6, index, row)
                for local, below in row.below.items():
                    yield from of(tables[1], 2, 4, f"{index}.{local}", below)


def octets_of(address):
    return ".".join(map(str, [len(address), *address]))


def main():
    tables = None
    for line in sys.stdin:
        command, *words = line.split()
        if command == "begin":
            tables = Tables(*map(int, words))
        elif command == "protocol":
            tables.protocol(bytes.fromhex(words[0]), int(words[1]), words[2] == "1")
        elif command == "packet":
            tick, length, link, tagged = map(int, words[:4])
            tables.packet(tick, length, link, tagged, bytes.fromhex(words[4][1:]))
        elif command == "objects":
            sys.stdout.writelines(f"{line}\n" for line in tables.objects(int(words[0])))
            print(flush=True)
        elif command == "state":
            counts = [rows.inserts + rows.deletes for rows in (tables.hosts, tables.pairs)]
            print(tables.now, *counts[0], *counts[1], flush=True)


main()
