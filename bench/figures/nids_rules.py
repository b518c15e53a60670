#!/usr/bin/env python3
"""Rules for examples/pcap/nids from what nmap knows of services: what a service answers (nmap-service-probes: the literal parts
of its expressions, in their order), by the service's ports as source ports, and the paths that web scanners ask for
(http-fingerprints.lua) and what nmap itself asks (the probes), by destination port.

    bench/figures/nids_rules.py [FOLDER] > nmap.rules

FOLDER is one with the files of Debian's nmap-common 7.93+dfsg1-1 (usr/share/nmap); without it the package is fetched by
`apt-get download`. They are under nmap's licence, and so is what is made of them.
"""
import hashlib
import itertools
import os
import re
import subprocess
import sys
import tempfile
import warnings

try:
    from re import _parser as sre
except ImportError:
    import sre_parse as sre

PROBES, SERVICES, PATHS = "nmap-service-probes", "nmap-services", "nselib/data/http-fingerprints.lua"
SHA256 = {
    PROBES: "293d7b3679d8d09c756840b38bffd32bb45b00a86cb47b9af17029328ca234f1",
    SERVICES: "3645d4cd185026af66efba031e1fde2fd5612288fd6210695f3dd0dff373e6a2",
    PATHS: "68610498b9fdc1260c4fc991d5d8e00a57421c05f03477eea56952870410230a",
}
SHORTEST = 4  # a content of fewer bytes is in too many packets
CONTENTS = 6  # of a rule, at most
PORTS = 60  # a probe for more ports than these says nothing of them
HTTP = [80, 591, 593, 3128, 8000, 8008, 8080, 8081, 8888]
SAME = {"http": HTTP, "http-proxy": HTTP, "ssl": [443, 465, 636, 989, 990, 992, 993, 995, 8443]}


def read(folder, name):
    with open(os.path.join(folder, name), "rb") as file:
        content = file.read()
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256[name]:
        print(f"{name} is of another version, SHA-256 {digest}: rules differ", file=sys.stderr)
    return content.decode("latin-1").splitlines()


def service_ports(lines):
    """(service, protocol) to its ports."""
    found = {}
    for line in lines:
        if line.startswith("#") or not line.strip():
            continue
        name, port = line.split()[:2]
        number, protocol = port.split("/")
        found.setdefault((name, protocol), []).append(int(number))
    for name, ports in SAME.items():
        found[name, "tcp"] = ports
    return found


def numbers(text):
    """The ports of "21,23,80-85"."""
    ports = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        ports += range(int(low), int(high or low) + 1)
    return ports


def literals(parsed, runs):
    """Appends to `runs` what must be there in an expression, in order; a new run begins where anything may stand between."""
    for operation, value in parsed:
        if operation is sre.LITERAL and value < 256:
            runs[-1].append(value)
        elif operation is sre.SUBPATTERN and not (value[1] or value[2]):
            literals(value[3], runs)
        elif operation in (sre.MAX_REPEAT, sre.MIN_REPEAT) and value[0] == value[1] == 1:
            literals(value[2], runs)
        elif operation is not sre.AT:
            runs.append([])


def contents(expression, flags):
    """The contents of a rule for an expression, or nothing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed = sre.parse(expression)
    except (re.error, OverflowError, RecursionError):
        return None
    runs = [[]]
    literals(parsed, runs)
    runs = [bytes(run) for run in runs if len(run) >= SHORTEST]
    kept = sorted(runs, key=len, reverse=True)[:CONTENTS]
    runs = [run for run in runs if run in kept][:CONTENTS]
    nocase = "i" in flags
    return [(run, nocase) for run in runs]


def quoted(run):
    """A content as Snort writes it."""
    parts = itertools.groupby(run, lambda byte: 32 <= byte < 127 and chr(byte) not in '"\\|;:')
    return "".join(bytes(part).decode() if plain else f"|{bytes(part).hex(' ').upper()}|" for plain, part in parts)


def rule(sid, protocol, sides, wanted, title):
    source, destination = sides

    def ports(of):
        return "any" if of is None else "[" + ",".join(map(str, sorted(set(of)))) + "]"

    body = "".join(
        f'content:"{quoted(run)}";' + (" nocase;" if nocase else "") + (" distance:0;" if at else "") + " "
        for at, (run, nocase) in enumerate(wanted)
    )
    title = re.sub(r"[^\w .,/+-]", "", title)
    print(f'alert {protocol} any {ports(source)} -> any {ports(destination)} (msg:"{title}"; {body}sid:{sid};)')


def unescaped(text):
    """The bytes of a probe: C's escapes."""
    return text.encode("latin-1").decode("unicode_escape").encode("latin-1")


def of_services(probes, known):
    """Rules for what services answer and what nmap asks."""
    sid, protocol, probe_ports, text = 1, "tcp", [], b""
    for line in probes:
        word = line.split(" ", 1)
        if word[0] == "Probe":
            protocol, name, rest = word[1].split(" ", 2)
            protocol, probe_ports = protocol.lower(), []
            text = unescaped(rest[2 : rest.index(rest[1], 2)])
        elif word[0] == "ports":
            probe_ports = numbers(word[1].strip())
            if len(text) >= SHORTEST:
                rule(sid, protocol, (None, probe_ports), [(text, False)], f"nmap asks {name}")
                sid += 1
        elif word[0] in ("match", "softmatch"):
            service, rest = word[1].split(" ", 1)
            rest = rest.lstrip()[1:]
            end = rest.index(rest[0], 1)
            wanted = contents(rest[1:end], rest[end + 1 :].split(" ")[0])
            ports = known.get((service, protocol)) or (probe_ports if len(probe_ports) <= PORTS else None)
            if wanted and ports:
                rule(sid, protocol, (ports, None), wanted, f"{service} answers")
                sid += 1
    return sid


def of_paths(lines, sid):
    for path in sorted(set(re.findall(r"path\s*=\s*'(/[^']{3,})'", "\n".join(lines)))):
        if path.isascii():
            rule(sid, "tcp", (None, HTTP), [(path.encode(), True)], "path that scanners ask for")
            sid += 1


def main():
    if len(sys.argv) > 2 or sys.argv[1:] in (["-h"], ["--help"]):
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        if len(sys.argv) == 2:
            root = sys.argv[1]
        else:
            subprocess.run(["apt-get", "download", "-q", "nmap-common"], cwd=folder, stdout=sys.stderr, check=True)
            (package,) = os.listdir(folder)
            subprocess.run(["dpkg-deb", "-x", package, "."], cwd=folder, check=True)
            root = os.path.join(folder, "usr/share/nmap")
        known = service_ports(read(root, SERVICES))
        next_sid = of_services(read(root, PROBES), known)
        of_paths(read(root, PATHS), next_sid)


if __name__ == "__main__":
    main()
