"""The tools the benchmark runs, what each does, and what it must reach."""

import json
import os
import re
import shutil

WORK_TITLES = {
    "read": "reading and decoding every packet",
    "flows": "flow records",
    "streams": "every stream byte delivered in order and read",
    "match": "every stream searched for 2,120 patterns",
}

# What flowgauge must reach: ratio to the libpcap loop, by trace.
TARGETS = {
    ("read", "flowgauge decode"): {"mix": 0.7, "small": 0.6, "real": 0.7},
    ("flows", "flowgauge flows"): {"mix": 1.0, "small": 3.5, "real": 1.5},
    ("streams", "flowgauge streams"): {"mix": 1.2, "small": 1.6, "real": 1.8},
    ("streams", "flowgauge streams, chunks of 16 KiB"): {"mix": 1.8},
    ("match", "flowgauge match"): {"mix": 2.8},
}


class Command:
    """What is executed; `discard_output` when its standard output is not needed."""

    def __init__(self, argv, discard_output=False):
        self.argv = argv
        self.discard_output = discard_output


class Tool:
    """One way to do one kind of work."""

    def __init__(self, name, work, make, needs, result=None, ours=False, slow=False, environment=None, good_status=(0,)):
        self.name = name
        self.work = work
        self.make = make
        self.needs = needs
        self.result = result
        self.ours = ours
        self.slow = slow
        self.environment = environment or {}
        self.good_status = good_status

    def command(self, flowgauge, bin_dir, path, work_dir):
        return self.make(flowgauge, bin_dir, path, work_dir)

    def available(self, flowgauge, bin_dir):
        if self.ours:
            return os.access(flowgauge, os.X_OK)
        return shutil.which(self.needs) is not None or os.access(os.path.join(bin_dir, self.needs), os.X_OK)

    def read_result(self, stdout, stderr, work_dir):
        """Counts the tool reports of itself (`packets`, `bytes`, `records`), or nothing."""
        try:
            return self.result(stdout, stderr, work_dir) if self.result else {}
        except (ValueError, OSError, IndexError, KeyError):
            return {}


def decode_example(flowgauge):
    """The example program beside the measured binary that only reads and decodes."""
    return os.path.join(os.path.dirname(flowgauge), "examples", "decode")


def own_json(stdout, _stderr, _work_dir):
    return json.loads(stdout.strip().splitlines()[-1])


def tcpflow_bytes(_stdout, _stderr, work_dir):
    names = re.compile(r"^[0-9a-f.:]+-[0-9a-f.:]+(--\d+)?(c\d+)?$")
    total = 0
    for folder, _, files in os.walk(work_dir):
        total += sum(os.path.getsize(os.path.join(folder, name)) for name in files if names.match(name))
    return {"bytes": total}


def own_matches(_stdout, stderr, work_dir):
    """Matches in TCP streams, and the sum that `nids_match` prints of them, from the records."""
    matches = total = tcp = 0
    with open(os.path.join(work_dir, "matches.json")) as file:
        for line in file:
            record = json.loads(line)
            matches += 1
            if record["proto"] == "tcp":
                tcp += 1
                total += record["pattern_id"] * record["end"]
    return {"all_matches": matches, "matches": tcp, "sum": total % (1 << 64)}


def match(f, p, d, *options):
    return Command([f, "match", "-r", p, "-f", PATTERNS["text"], "--json", "-w", f"{d}/matches.json", *options])


# Written by run.py from bench/patterns.py before the first run.
PATTERNS = {"text": "patterns.txt", "hex": "patterns.hex"}

# The decoded fields that tshark has to print per packet to stand for "reads and decodes".
TSHARK_FIELDS = ["-T", "fields", "-e", "ip.src", "-e", "ip.dst", "-e", "tcp.srcport", "-e", "udp.srcport"]

# Without it glibc gives memory back and takes it again for every stream, and the system time of a
# run depends on the order of frees.
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "1073741824", "MALLOC_TOP_PAD_": "67108864"}

TOOLS = [
    Tool("libpcap loop", "read", lambda f, b, p, d: Command([f"{b}/pcap_loop", p]), "pcap_loop", own_json),
    Tool("flowgauge decode", "read", lambda f, b, p, d: Command([decode_example(f), p]), "", own_json, ours=True),
    Tool("tshark", "read", lambda f, b, p, d: Command(["tshark", "-n", "-r", p, *TSHARK_FIELDS], True), "tshark", slow=True),
    Tool("flowgauge flows", "flows", lambda f, b, p, d: Command([f, "flows", "-r", p, "--json"], True), "", ours=True),
    Tool("flowscope flows", "flows", lambda f, b, p, d: Command([f"{b}/flowscope-peer", "flows", p]), "flowscope-peer", own_json),
    Tool(
        "softflowd",
        "flows",
        # Exports to a closed port of the loopback; -m: its default of 8192 flows would evict.
        lambda f, b, p, d: Command(["softflowd", "-r", p, "-d", "-m", "2000000", "-v", "10", "-n", "127.0.0.1:9",
                                    "-p", f"{d}/pid", "-c", "none"], True),
        "softflowd",
    ),
    Tool("argus", "flows", lambda f, b, p, d: Command(["argus", "-X", "-r", p, "-w", f"{d}/argus.out"], True), "argus"),
    Tool("nfpcapd", "flows", lambda f, b, p, d: Command(["nfpcapd", "-r", p, "-w", d], True), "nfpcapd"),
    Tool("tshark conversations", "flows", lambda f, b, p, d: Command(["tshark", "-n", "-q", "-r", p, "-z", "conv,tcp", "-z", "conv,udp"], True), "tshark", slow=True),
    Tool("flowgauge streams", "streams", lambda f, b, p, d: Command([f, "streams", "-r", p, "--count", "--json"]), "", own_json, ours=True),
    Tool("flowgauge streams, chunks of 16 KiB", "streams",
         lambda f, b, p, d: Command([f, "streams", "-r", p, "--count", "--json", "--chunk", "16384"]), "", own_json, ours=True),
    Tool("flowgauge streams, checksums ignored", "streams",
         lambda f, b, p, d: Command([f, "streams", "-r", p, "--count", "--json", "--checksums", "ignore"]), "", own_json, ours=True),
    Tool("libnids", "streams", lambda f, b, p, d: Command([f"{b}/nids_count", p]), "nids_count", own_json, environment=KEEP_MEMORY),
    Tool("libnids, checksums ignored", "streams", lambda f, b, p, d: Command([f"{b}/nids_count", p, "nochecksum"]), "nids_count", own_json, environment=KEEP_MEMORY),
    Tool("flowscope streams", "streams", lambda f, b, p, d: Command([f"{b}/flowscope-peer", "streams", p]), "flowscope-peer", own_json),
    # One file per direction, in memory; -x: no HTTP objects written out again.
    Tool("tcpflow", "streams", lambda f, b, p, d: Command(["tcpflow", "-q", "-x", "http", "-x", "md5", "-r", p, "-o", d], True), "tcpflow", tcpflow_bytes),
    Tool("flowgauge match", "match", lambda f, b, p, d: match(f, p, d), "", own_matches, ours=True),
    Tool("flowgauge match, without Vectorscan", "match", lambda f, b, p, d: match(f, p, d, "--matcher", "aho-corasick"), "",
         own_matches, ours=True, slow=True),
    Tool("libnids + Vectorscan", "match", lambda f, b, p, d: Command([f"{b}/nids_match", p, PATTERNS["hex"]]), "nids_match",
         own_json, environment=KEEP_MEMORY),
]
