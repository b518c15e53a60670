"""Makes the `real` trace: the distinct Ethernet captures of the corpora, merged.

Each capture is moved in time so that many overlap and none is years away from the next; the
packets themselves are unchanged. The result is written `copies` times one after the other, far
enough apart for every idle timeout, to be long enough to measure.
"""

import hashlib
import os
import struct

CAPTURE_MAGICS = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
ETHERNET = 1
START = 1_600_000_000
SPACING_NS = 50_000_000  # between the starts of two captures
SPAN_LIMIT_NS = 3600 * 10**9  # a capture longer than this is left out
PAUSE_NS = 600 * 10**9  # between two copies
SNAP_LENGTH = 262_144


def packets_of(content):
    """Yields (time_ns, offset, captured, wire) of a classic Ethernet pcap; stops where it is cut."""
    if content[:4] not in CAPTURE_MAGICS or len(content) < 24:
        return
    order, unit = CAPTURE_MAGICS[content[:4]]
    if struct.unpack_from(order + "I", content, 20)[0] & 0xFFFF != ETHERNET:
        return
    record = struct.Struct(order + "IIII")
    at = 24
    while at + 16 <= len(content):
        seconds, fraction, captured, wire = record.unpack_from(content, at)
        if captured > SNAP_LENGTH or at + 16 + captured > len(content):
            return
        yield seconds * 10**9 + fraction * unit, at + 16, captured, wire
        at += 16 + captured


def make(corpora, target, copies):
    """Writes the merged capture to `target`; returns (captures, packets)."""
    contents, merged, seen = [], [], set()
    span = 0
    for folder, _, names in sorted(os.walk(corpora)):
        for name in sorted(names):
            if not name.endswith((".pcap", ".cap", ".dump")):
                continue
            with open(os.path.join(folder, name), "rb") as file:
                content = file.read()
            digest = hashlib.sha1(content).digest()
            if digest in seen:
                continue
            seen.add(digest)
            packets = list(packets_of(content))
            if not packets:
                continue
            first = min(packet[0] for packet in packets)
            if max(packet[0] for packet in packets) - first > SPAN_LIMIT_NS:
                continue
            offset = len(contents) * SPACING_NS - first
            # Packets of one capture keep their order (sorting is stable), as in the file, even
            # where their times go back: a running maximum is the time they are merged at.
            latest = 0
            for time, at, captured, wire in packets:
                latest = max(latest, time + offset)
                merged.append((latest, len(contents), at, captured, wire))
            span = max(span, latest)
            contents.append(content)
    merged.sort(key=lambda packet: packet[:2])
    partial = target + ".partial"
    with open(partial, "wb", buffering=1 << 20) as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, SNAP_LENGTH, ETHERNET))
        for copy in range(copies):
            shift = START * 10**9 + copy * (span + PAUSE_NS)
            for time, file, at, captured, wire in merged:
                seconds, rest = divmod(time + shift, 10**9)
                out.write(struct.pack("<IIII", seconds, rest // 1000, captured, wire))
                out.write(contents[file][at : at + captured])
    os.replace(partial, target)
    return len(contents), len(merged) * copies
