#!/usr/bin/env python3
"""The Pandora paper's figure 6 and tables 3 and 4, measured here: makes the traces that are missing, runs
`stack bench` and writes docs/figures-stacks.md with its plot.

usage: bench/figures/stacks.py [--trace-dir DIR] [--repeat N] [--flowgauge BINARY]
"""

import argparse
import json
import os
import subprocess
import sys

import plot

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CACHE = os.environ.get("FLOWGAUGE_CACHE", os.path.expanduser("~/.cache/flowgauge"))
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
PLOTS = os.path.join(ROOT, "docs", "figures")
PAGE = os.path.join(ROOT, "docs", "figures-stacks.md")

# Scale of each trace, and what its demultiplexer may hold.
TRACES = [("syn", 1), ("mix", 0.2), ("web", 0.5), ("one-client", 1)]
TIMEOUTS = (2, 30, 255)
MOST_IDENTITIES = 8

HEAD = """# Figure 6 and tables 3 and 4 of the Pandora paper, reproduced

Written by `bench/figures/stacks.py`: time on one core by `flowgauge stack bench`, packets in memory and decoded,
minimum of several runs.{remark}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--trace-dir", default=os.path.join(CACHE, "traces"), help="where traces are kept")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each stack")
    parser.add_argument("--flowgauge", default=os.path.join(TARGET, "release", "flowgauge"), help="the binary")
    parser.add_argument("--remark", default="", help="a sentence for the page, as on the machine's load")
    options = parser.parse_args()
    os.makedirs(PLOTS, exist_ok=True)
    os.makedirs(options.trace_dir, exist_ok=True)
    remark = " " + options.remark if options.remark else ""
    text = "\n".join([HEAD.format(remark=remark), identities(options), tables(options), others(options)])
    with open(PAGE, "w") as file:
        file.write(text)
    print(text)
    print(f"written to {PAGE}", file=sys.stderr)


def trace(options, name, scale):
    """A generated capture, made when absent."""
    path = os.path.join(options.trace_dir, name if scale == 1 else f"{name}-{scale}") + ".pcap"
    if not os.path.exists(path):
        if name == "one-client":
            # What the client of `web` with the most packets says and hears.
            web = trace(options, "web", 1)
            command = ["flows", "-q", "--json", "-r", web, "--by", "src_ip", "--sum", "packets", "--top", "1"]
            done = subprocess.run([options.flowgauge, *command], stdout=subprocess.PIPE, text=True, check=True)
            client = json.loads(done.stdout.splitlines()[0])["src_ip"]
            command = ["capture", "-r", web, f"host {client}"]
        else:
            command = ["generate", name, "--scale", str(scale)]
        subprocess.run([options.flowgauge, *command, "-q", "-w", path], check=True)
    return path


def bench(options, capture, stack, batch=256, repeat=None):
    """Nanoseconds per packet of a stack, and what is known of each component."""
    command = [options.flowgauge, "stack", "bench", "--json", "--repeat", str(repeat or options.repeat)]
    command += ["--batch", str(batch), "-r", capture, "-e", stack]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return rows[-1]["nanoseconds"], rows[-1]["packets"], {row["component"]: row for row in rows[:-1]}


def identities(options):
    capture = trace(options, "small", 0.0005)
    series, rows = [], []
    for name, batch, stack in (
        ("in batches of 256", 256, "tcpscan {} count"),
        ("one by one", 1, "tcpscan {} count"),
        ("in tcpcnxdemux, in batches of 256", 256, "tcpscan tcpcnxdemux < {} > count"),
        ("in tcpcnxdemux, one by one", 1, "tcpscan tcpcnxdemux < {} > count"),
    ):
        points = []
        for count in range(1, MOST_IDENTITIES + 1):
            nanos, _, _ = bench(options, capture, stack.format(" ".join(["identity"] * count)), batch, 200)
            points.append((count, nanos))
        slope, deviation = fit(points)
        series.append((name, points))
        rows.append([name, f"{slope:.2f}", f"{deviation:.2f}"])
    plot.lines(
        os.path.join(PLOTS, "identities.svg"), "Identity components in a row", "components", "ns per packet", series
    )
    table = plot.table(["identities", "ns per packet each", "largest deviation from the line, ns"], rows)
    return section(
        "Identity components (figure 6)",
        "stack bench --batch N -r small.pcap -e 'tcpscan tcpcnxdemux < identity ... > count'",
        "identities.svg",
        table,
        "Slope of a line through one to eight of them (the paper: 260 ns each).",
    )


def fit(points):
    """Slope of the line of least squares, and the furthest that a point is from it."""
    count = len(points)
    mean_x, mean_y = (sum(point[at] for point in points) / count for at in (0, 1))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return slope, max(abs(y - mean_y - slope * (x - mean_x)) for x, y in points)


def tables(options):
    rows = []
    for name, scale in TRACES:
        capture = trace(options, name, scale)
        floor, packets, _ = bench(options, capture, "tcpscan identity count")
        for timeout in TIMEOUTS:
            stack = f"tcpscan tcpcnxdemux {{ timeout = {timeout}, keys = 8M }} < identity > count"
            nanos, _, components = bench(options, capture, stack)
            demux = components["tcpcnxdemux"]
            inserted = demux["result"] / max(demux["items"], 1)
            rows.append(
                [
                    name, f"{packets:,}", timeout, f"{demux['most_keys']:,}", f"{100 * inserted:.1f} %",
                    f"{nanos - floor:.0f}",
                ]
            )
    headings = ["trace", "packets", "timeout, s", "keys at once", "packets that created a key", "ns per packet"]
    return section(
        "Demultiplexing by connection (tables 3 and 4)",
        "stack bench -r TRACE -e 'tcpscan tcpcnxdemux { timeout = T, keys = 8M } < identity > count'",
        None,
        plot.table(headings, rows),
        "Cost that the demultiplexer adds, including creating and ending keys (the paper: 2.1 to 20 us).",
    )


# What stands between `tcpscan` and `count`, and what is measured without it.
OTHERS = [
    ("tcpreseq", "tcpcnxdemux < tcpreseq >", "tcpcnxdemux < identity >"),
    ("chunks", "tcpcnxdemux < tcpreseq chunks >", "tcpcnxdemux < tcpreseq >"),
    ("cook", "cook", ""),
    ("around", 'around { pattern = "HTTP/1.1 404", before = 5, after = 5 }', ""),
    ("search", 'search { "HTTP/1.1 404" }', ""),
    ("track_web", "track_web", ""),
    ("track_ftp", "track_ftp", ""),
    ("track_torrent", "track_torrent", ""),
    ("track_skype", "track_skype", ""),
    ("track_irc", "track_irc", ""),
    ("results = 20 of a count", "tcpcnxdemux { results = 20 } < count { as = inner } >", "tcpcnxdemux < count { as = inner } >"),
]


def others(options):
    captures = [(name, trace(options, name, scale)) for name, scale in TRACES if name in ("mix", "web")]
    rows = []
    for name, stack, without in OTHERS:
        row = [name]
        for _, capture in captures:
            floor, _, _ = bench(options, capture, f"tcpscan {without} count")
            nanos, _, _ = bench(options, capture, f"tcpscan {stack} count")
            row.append(f"{nanos - floor:.0f}")
        rows.append(row)
    headings = ["component"] + [f"{name}, ns per packet" for name, _ in captures]
    return section(
        "Other components",
        "stack bench -r TRACE -e 'tcpscan COMPONENT count'",
        None,
        plot.table(headings, rows),
        "Difference to the same stack without the component, per packet of the trace, whether passed or not.",
    )


def section(title, command, image, table, remark):
    parts = [f"## {title}", "", f"`{command}`. {remark}", "", table, ""]
    if image:
        parts += [f"![{title}](figures/{image})", ""]
    return "\n".join(parts)


if __name__ == "__main__":
    main()
