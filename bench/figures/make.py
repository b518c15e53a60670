#!/usr/bin/env python3
"""The Scap paper's figures, measured here: builds the examples, makes the traces that are missing,
runs everything and writes docs/figures.md with its plots.

usage: bench/figures/make.py [--only connections,overload,loss,cutoff,matching,cache,packets,cores]
       [--trace-dir DIR] [--built]

With --only the other figures of the page stay as they are. --built takes the binaries that are there.
"""

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import time

import cache
import plot

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CACHE = os.environ.get("FLOWGAUGE_CACHE", os.path.expanduser("~/.cache/flowgauge"))
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
PLOTS = os.path.join(ROOT, "docs", "figures")
EXAMPLES = {
    "connections": "stream", "overload": "stream", "chunks": "stream", "loss": "stream", "cutoff": "matcher",
    "packet_search": "matcher",
}
# Runs of what is timed, by turns.
ROUNDS = 5


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", default=",".join(FIGURES), help="which figures")
    parser.add_argument("--trace-dir", default=os.path.join(CACHE, "traces"), help="where traces are kept")
    parser.add_argument("--built", action="store_true", help="build nothing")
    options = parser.parse_args()
    if not options.built:
        build()
    os.makedirs(PLOTS, exist_ok=True)
    os.makedirs(options.trace_dir, exist_ok=True)
    page = os.path.join(ROOT, "docs", "figures.md")
    for name in options.only.split(","):
        text = FIGURES[name](options.trace_dir)
        if name in TIMED:
            text += measured() + load()
        text = marked(name, text)
        print(text, flush=True)
        # After each: a run may take long, and be ended.
        write(page, name, text)
    print(f"written to {page}", file=sys.stderr)


def marked(name, text):
    return f"<!-- {name} -->\n{text}"


def write(page, name, text):
    """Puts one figure into the page, in its place."""
    parts = {}
    if os.path.exists(page):
        with open(page) as file:
            found = re.split(r"^<!-- (\w+) -->\n", file.read(), flags=re.M)
        parts = {each: marked(each, body.strip() + "\n") for each, body in zip(found[1::2], found[2::2])}
    parts[name] = text.strip() + "\n"
    with open(page, "w") as file:
        file.write("\n".join([HEAD, *(parts[each] for each in FIGURES if each in parts)]))


def measured():
    """When, and on what."""
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown processor")
    return f"\nMeasured {datetime.date.today()} on {model}, {os.cpu_count()} cores.\n"


def load():
    """How busy the machine is, where it is busier than its cores."""
    busy, cores = os.getloadavg()[0], os.cpu_count() or 1
    if busy <= cores:
        return ""
    return f"\nMachine busy: load {busy:.1f} on {cores} cores.\n"


HEAD = """# Figures of the Scap paper, reproduced

Written by `bench/figures/make.py`; each table names its command. Figures that depend on the machine are CPU time of one core;
the overload figures use the capture clock and are the same on every machine.
"""


def build():
    cargo = ["cargo", "build", "--release", "--quiet"]
    subprocess.run([*cargo, "-p", "flowgauge-cli", "--bin", "flowgauge"], cwd=ROOT, check=True)
    for example, crate in EXAMPLES.items():
        subprocess.run([*cargo, "-p", f"flowgauge-{crate}", "--example", example], cwd=ROOT, check=True)


def binary(example=None):
    folder = os.path.join(TARGET, "release")
    return os.path.join(folder, "examples", example) if example else os.path.join(folder, "flowgauge")


def trace(folder, preset, scale=None):
    """A generated capture, made when absent."""
    name = preset if scale is None else f"{preset}-{scale}"
    path = os.path.join(folder, name + ".pcap")
    if not os.path.exists(path):
        command = [binary(), "generate", preset, "-q", "-w", path]
        subprocess.run(command + (["--scale", str(scale)] if scale else []), check=True)
    return path


def output(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def lines_of(*command):
    return [json.loads(line) for line in output(*command).splitlines() if line.startswith("{")]


def connections(_):
    rows, points = [], []
    for count in (10_000, 100_000, 1_000_000, 10_000_000):
        text = output(binary("connections"), str(count)).splitlines()
        words = text[0].split()
        nanos, resident = float(words[5]), float(words[words.index("resident") - 2])
        rows.append([f"{count:,}", f"{nanos:.0f}", f"{resident:.0f}", "none" if "none lost" in text[1] else text[1]])
        points.append((count, nanos))
    plot.lines(
        os.path.join(PLOTS, "connections.svg"), "CPU time per packet", "connections open at once", "ns", [("flowgauge", points)], log_x=True
    )
    # In half of what all of them would need.
    text = output(binary("connections"), "10000000", "--chunks").splitlines()
    words = text[0].split()
    lost = "none" if "none lost" in text[1] else text[1]
    rows.append(["10,000,000, each with data pending in a chunk", words[5], words[words.index("resident") - 2], lost])
    table = plot.table(["connections", "ns per packet", "bytes resident per connection", "lost"], rows)
    return section(
        "Connections open at once (figure 5)", "connections COUNT", "connections.svg", table,
        "Packets are generated in memory; the cost of generating them is subtracted. Each packet is a 64-byte data segment of the next "
        "connection. With `--chunks` every connection has pending data, in 512 MiB overall, so nearly every packet flushes another "
        "connection's chunk.",
    )


def overload(folder):
    found = lines_of(binary("overload"), trace(folder, "elephants"))
    names = {
        "low_lost": "low priority lost",
        "high_lost": "high priority lost",
        "heads_kept_with_cutoff": "first 10 KB kept, overload cutoff",
        "heads_kept_without": "first 10 KB kept, no overload cutoff",
        "heads_kept_at_random": "first 10 KB kept, same loss at random",
    }
    series = [(name, [(row["load"], row[key]) for row in found]) for key, name in names.items()]
    plot.lines(os.path.join(PLOTS, "overload.svg"), "Overload on elephants", "load over what the consumer takes", "share", series, y_max=1.0)
    rows = [[row["load"], *(f"{row[key]:.3f}" for key in names)] for row in found]
    table = plot.table(["load", *names.values()], rows)
    return section(
        "Prioritized loss and overload cutoff (figures 6 and 9)", "overload elephants.pcap", "overload.svg", table,
        "64 MiB of memory; one connection in ten has the high priority.",
    )


def loss(_):
    found = lines_of(binary("loss"))
    one = [row for row in found if "rho" in row]
    three = [row for row in found if "priority" in row]
    parts = []
    for rows, key, name, title in (
        (one, "rho", "load {}", "Loss of one priority"),
        (three, "priority", "priority {}", "Loss of three priorities"),
    ):
        series = []
        for value in sorted({row[key] for row in rows}):
            of = [row for row in rows if row[key] == value]
            series.append((name.format(value), [(row["n"], row["model"]) for row in of]))
            series.append((name.format(value) + ", measured", [(row["n"], row["measured"]) for row in of]))
        image = "loss.svg" if key == "rho" else "loss-priorities.svg"
        plot.lines(
            os.path.join(PLOTS, image), title, "packets that memory has room for", "share of the arrivals lost", series,
            y_max=1.0, y_min=1e-6, dots=[name for name, _ in series[1::2]],
        )
        cells = [
            [row[key], row["n"], f"{row['model']:.3e}", f"{row['measured']:.3e}", f"{row['half_width']:.1e}"] for row in rows
        ]
        head = "load" if key == "rho" else "priority"
        parts += [plot.table([head, "N", "model", "measured", "half-width of the confidence interval"], cells), ""]
        parts += [f"![{title}](figures/{image})", ""]
    return section(
        "Loss by queueing theory (section 7)", "loss", None, "\n".join(parts),
        "Ten million arrivals each, with the engine's watermarks; 99.9 % confidence intervals. One priority: M/M/1/N in closed "
        "form. Three priorities (loads 0.6, 0.5 and 0.4 from the lowest, base threshold N / 5): the Markov chain, solved "
        "numerically, because the paper's closed form mixes exponents N and N/3.",
    )


def pattern_file(folder, **forms):
    """Writes the patterns of `match` in the forms asked for."""
    command = [sys.executable, os.path.join(ROOT, "bench", "patterns.py")]
    for form, path in forms.items():
        command += [f"--{form}", path]
    subprocess.run(command, check=True)


def matching(folder):
    """The cost of a search by the number of patterns."""
    peers = os.path.join(CACHE, "bench")
    capture = trace(folder, "mix")
    files = {form: os.path.join(folder, f"patterns.{ending}") for form, ending in (("text", "txt"), ("hex", "hex"))}
    pattern_file(folder, **files)
    tools = {"flowgauge match": [binary(), "match", "-r", capture, "-q", "--json", "-w", os.devnull, "-f"]}
    nids = os.path.join(peers, "nids_match")
    if os.path.exists(nids):
        tools["libnids + Vectorscan"] = [nids, capture]
    loop = os.path.join(peers, "pcap_loop")
    rows, points = [], {name: [] for name in tools}
    for count in (10, 100, 500, 1000, 2120):
        times = {}
        for _ in range(3):
            times.setdefault("loop", []).append(cpu(loop, capture))
            for name, command in tools.items():
                form = "text" if name.startswith("flowgauge") else "hex"
                few = files[form] + ".few"
                head(files[form], few, count)
                times.setdefault(name, []).append(cpu(*command, few))
                os.remove(few)
        least = {name: min(each) for name, each in times.items()}
        row = [f"{count:,}", f"{least['loop']:.2f}"]
        for name in tools:
            ratio = least[name] / least["loop"]
            points[name].append((count, ratio))
            row.append(f"{least[name]:.2f} ({ratio:.2f})")
        rows.append(row)
    plot.lines(
        os.path.join(PLOTS, "matching.svg"), "Pattern matching on mix", "patterns", "CPU time over the libpcap loop's",
        list(points.items()), log_x=True,
    )
    table = plot.table(["patterns", "libpcap loop, CPU s", *(f"{name}, CPU s (ratio)" for name in tools)], rows)
    return section(
        "Pattern matching (section 6.5)", "flowgauge match -r mix.pcap -q --json -w /dev/null -f PATTERNS", "matching.svg", table,
        "The first N of the 2,120 patterns of [benchmarks.md](benchmarks.md), which also compares the matches found; minimum of three "
        "runs.",
    )


def head(path, to, count):
    """The first lines of a file."""
    with open(path, errors="surrogateescape") as source, open(to, "w", errors="surrogateescape") as sink:
        for _, line in zip(range(count), source):
            sink.write(line)


def cutoff(folder):
    patterns = os.path.join(folder, "patterns.txt")
    pattern_file(folder, text=patterns)
    found = lines_of(binary("cutoff"), trace(folder, "elephants"), patterns)
    # The first run also warms the page cache.
    found = lines_of(binary("cutoff"), trace(folder, "elephants"), patterns) or found
    whole = found[0]
    rows = [
        [
            "none" if row["cutoff"] is None else f"{row['cutoff']:,}",
            f"{100 * row['delivered_bytes'] / whole['all_bytes']:.1f} %",
            f"{row['cpu_seconds']:.2f}",
            f"{row['matches']:,} ({100 * row['matches'] / max(whole['matches'], 1):.1f} %)",
        ]
        for row in found
    ]
    points = [(row["cutoff"], row) for row in found if row["cutoff"]]
    plot.lines(
        os.path.join(PLOTS, "cutoff.svg"), "Stream cutoff on elephants", "cutoff in bytes", "share of the run without",
        [
            ("bytes delivered", [(at, row["delivered_bytes"] / whole["delivered_bytes"]) for at, row in points]),
            ("CPU time", [(at, row["cpu_seconds"] / whole["cpu_seconds"]) for at, row in points]),
            ("matches", [(at, row["matches"] / max(whole["matches"], 1)) for at, row in points]),
        ],
        log_x=True, y_max=1.1,
    )
    table = plot.table(["cutoff in bytes", "bytes delivered", "CPU s", "matches"], rows)
    return section("Stream cutoff (figure 8)", "cutoff elephants.pcap patterns.txt", "cutoff.svg", table, "2,120 patterns.")


def packets(folder):
    patterns = os.path.join(folder, "patterns.txt")
    pattern_file(folder, text=patterns)
    rows = []
    for preset in ("mix", "web"):
        capture = trace(folder, preset)
        read, search = {}, {}
        for name, extra in (("chunks", []), ("both", ["--packets"])) * ROUNDS:
            read.setdefault(name, []).append(cpu(binary("chunks"), capture, *extra))
        for way in ("chunks", "both", "packets") * ROUNDS:
            row = json.loads(output(binary("packet_search"), way, capture, patterns))
            search.setdefault(way, []).append(row["cpu_seconds"])
        for what, times in (("each byte read", read), ("2,120 patterns searched", search)):
            least = {way: min(seconds) for way, seconds in times.items()}
            cost = lambda way: f"{least[way]:.2f} ({least[way] / least['chunks']:.2f})" if way in least else ""
            rows.append([preset, what, f"{least['chunks']:.2f}", cost("both"), cost("packets")])
    table = plot.table(
        ["capture", "application", "chunks, CPU s", "chunks, and each of their packets (ratio)",
         "packet payloads instead (ratio)"],
        rows,
    )
    return section(
        "Packet delivery (section 6.5.3)", "chunks FILE [--packets]`, `packet_search chunks|both|packets FILE PATTERNS", None, table,
        f"Minimum of {ROUNDS} alternating runs. The paper's application searches for patterns; adding up bytes is the cheapest possible "
        "application. Vectorscan searches 16 KiB at once faster than eleven times 1,448 bytes, independently of the capture library.",
    )


def cpu(*command):
    """User and system seconds of a command."""
    before = os.times()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def cores(folder):
    """By the clock, as CPU time says nothing here."""
    patterns = os.path.join(folder, "patterns.txt")
    pattern_file(folder, text=patterns)
    capture = trace(folder, "mix")
    command = [binary(), "match", "-r", capture, "-q", "--json", "-w", "/dev/null", "-f", patterns]
    ways = {
        "one worker": [*command, "--workers", "1"],
        "two workers": [*command, "--workers", "2"],
    }
    times = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, line in ways.items():
            begin = time.monotonic()
            subprocess.run(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            times[way].append(time.monotonic() - begin)
    least = {way: min(seconds) for way, seconds in times.items()}
    rows = [[way, f"{seconds:.2f}", f"{least['one worker'] / seconds:.2f}"] for way, seconds in least.items()]
    table = plot.table(["threads", "seconds", "speed-up over one worker"], rows)
    return section(
        "Two cores", "flowgauge match -r mix.pcap -q --json -w /dev/null -f PATTERNS --workers N", None, table,
        f"2,120 patterns; wall-clock seconds, minimum of {ROUNDS} alternating runs.",
    )


def misses(folder):
    nids = os.path.join(CACHE, "bench", "nids_count")
    captures = [trace(folder, "mix", 0.05), trace(folder, "small", 0.05), trace(folder, "web", 0.2)]
    table = cache.measure(binary(), nids if os.path.exists(nids) else None, captures)
    return section(
        "Cache misses per packet (figure 7)", "bench/figures/cache.py FLOWGAUGE NIDS_COUNT CAPTURE ...", None, table,
        "Simulated by cachegrind with a last-level cache of 6 MB and 24 ways.",
    )


def section(title, command, image, table, remark):
    parts = [f"## {title}", "", f"`{command}`. {remark}", "", table, ""]
    if image:
        parts += [f"![{title}](figures/{image})", ""]
    return "\n".join(parts)


FIGURES = {
    "connections": connections,
    "overload": overload,
    "loss": loss,
    "cutoff": cutoff,
    "matching": matching,
    "cache": misses,
    "packets": packets,
    "cores": cores,
}

# What takes time on this machine.
TIMED = {"connections", "cutoff", "matching", "packets", "cores"}

if __name__ == "__main__":
    main()
