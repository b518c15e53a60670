#!/usr/bin/env python3
"""The Pandora paper's tables 6 and 7 (what HTTP costs, stack by stack and component by component), measured here: makes the
traces that are missing, runs `stack bench` and writes docs/figures-protocols.md.

usage: bench/figures/protocols.py [--trace-dir DIR] [--repeat N] [--flowgauge BINARY]
"""

import argparse
import os
import sys

import plot
import stacks

PAGE = os.path.join(stacks.ROOT, "docs", "figures-protocols.md")

# Scale of each trace: it has to stay in memory, decoded.
TRACES = [("web", 0.25), ("mix", 0.1)]

HEAD = """# Tables 6 and 7 of the Pandora paper, reproduced

Written by `bench/figures/protocols.py`: time on one core by `flowgauge stack bench`, minimum of {repeat} runs, packets in memory.
Components that track connections themselves (`transactions`) decode packets once more.{remark} The paper, on a 500 MHz Alpha: 50
microseconds per packet and 75 to 88 Mbit/s for HTTP, 612 to 2,600 records per second.
"""

# A name, the stack, and which component's result is the number of records.
STACKS = [
    ("HTTP, both directions at once", "tcpscan tcpcnxdemux < tcpreseq http > count", "http"),
    ("HTTP, direction by direction", "tcpscan tcpcnxdemux < tcpdirdemux < tcpreseq httpscan > httpmatch > count", "httpmatch"),
    ("HTTP, written as JSON lines", "tcpscan tcpcnxdemux < tcpreseq http > output { file = /dev/null }", "http"),
    ("HTTP by `transactions`", "transactions { protocols = http } count", "transactions"),
    ("all protocols by `transactions`", "transactions count", "transactions"),
    ("all, written as JSON lines", "transactions output { file = /dev/null }", "transactions"),
    ("all, written as EVE", "transactions logs { file = /dev/null }", "transactions"),
]

# A component, the stack with it, and the stack without it.
COMPONENTS = [
    ("tcpcnxdemux", "tcpcnxdemux < identity >", "identity"),
    ("tcpdirdemux", "tcpcnxdemux < tcpdirdemux < identity > >", "tcpcnxdemux < identity >"),
    ("tcpreseq", "tcpcnxdemux < tcpreseq >", "tcpcnxdemux < identity >"),
    ("http", "tcpcnxdemux < tcpreseq http >", "tcpcnxdemux < tcpreseq >"),
    ("httpscan", "tcpcnxdemux < tcpdirdemux < tcpreseq httpscan > >", "tcpcnxdemux < tcpdirdemux < tcpreseq > >"),
    (
        "httpmatch",
        "tcpcnxdemux < tcpdirdemux < tcpreseq httpscan > httpmatch >",
        "tcpcnxdemux < tcpdirdemux < tcpreseq httpscan > >",
    ),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--trace-dir", default=os.path.join(stacks.CACHE, "traces"), help="where traces are kept")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each stack")
    parser.add_argument(
        "--flowgauge", default=os.path.join(stacks.TARGET, "release", "flowgauge"), help="the binary"
    )
    parser.add_argument("--remark", default="", help="a sentence for the page, as on the machine's load")
    options = parser.parse_args()
    os.makedirs(options.trace_dir, exist_ok=True)
    remark = " " + options.remark if options.remark else ""
    captures = [(name, stacks.trace(options, name, scale)) for name, scale in TRACES]
    parts = [HEAD.format(repeat=options.repeat, remark=remark), whole(options, captures), parts_of(options, captures)]
    with open(PAGE, "w") as file:
        file.write("\n".join(parts))
    print("\n".join(parts))
    print(f"written to {PAGE}", file=sys.stderr)


def whole(options, captures):
    rows = []
    for name, capture in captures:
        for title, stack, counted in STACKS:
            nanos, packets, components = stacks.bench(options, capture, stack)
            # A header of 24 bytes, and one of 16 for each packet.
            bits = 8 * (os.path.getsize(capture) - 24 - 16 * packets)
            seconds = nanos * packets / 1e9
            records = components[counted]["result"]
            rows.append(
                [
                    name, title, f"{nanos / 1000:.2f}", f"{bits / seconds / 1e6:,.0f}", f"{records:,}",
                    f"{records / seconds:,.0f}",
                ]
            )
    headings = ["trace", "stack", "microseconds per packet", "Mbit/s", "records", "records per second"]
    return stacks.section(
        "Stacks (table 6)",
        "stack bench -r TRACE -e 'tcpscan tcpcnxdemux < tcpreseq http > count'",
        None,
        plot.table(headings, rows),
        "Per packet of any protocol; the script has the other stacks.",
    )


def parts_of(options, captures):
    rows = []
    for name, stack, without in COMPONENTS:
        row = [name]
        for _, capture in captures:
            floor, _, _ = stacks.bench(options, capture, f"tcpscan {without} count")
            nanos, _, _ = stacks.bench(options, capture, f"tcpscan {stack} count")
            row.append(f"{(nanos - floor) / 1000:.3f}")
        rows.append(row)
    headings = ["component"] + [f"{name}, microseconds per packet" for name, _ in captures]
    return stacks.section(
        "Components (table 7)",
        "stack bench -r TRACE -e 'tcpscan COMPONENT count'",
        None,
        plot.table(headings, rows),
        "Cost that each adds to the preceding stack, per packet of the trace.",
    )


if __name__ == "__main__":
    main()
