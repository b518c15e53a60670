#!/usr/bin/env python3
"""Measures flowgauge and its peers on the same captures in the same run.

Every tool is a whole process, run in turn (round after round, so that a change of the machine's
speed meets all of them); its cost is user plus system CPU time (wait4), shown as a ratio to a
libpcap read loop over the same file in the same round. Peak resident memory comes from the same
call. What a tool delivered is compared with the truth the generator wrote.

usage: bench/run.py [--runs N] [--traces mix,small,...] [--work read,flows,streams,match]
                    [--slow] [--no-peers] [--trace-dir DIR] [--write FILE]
"""

import argparse
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import real  # noqa: E402
import patterns  # noqa: E402
from tools import PATTERNS, TARGETS, TOOLS, WORK_TITLES  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CACHE = os.environ.get("FLOWGAUGE_CACHE", os.path.expanduser("~/.cache/flowgauge"))
TRACES = ["mix", "small", "web", "late", "loss", "real"]
SEED = 1
REAL_COPIES = 4
BASELINE = "libpcap loop"


def main():
    options = arguments()
    flowgauge = options.flowgauge or build_flowgauge()
    if options.setup:
        subprocess.run([os.path.join(ROOT, "bench", "setup.sh"), "--no-install"], check=True)
    os.makedirs(options.trace_dir, exist_ok=True)
    if "match" in options.work:
        write_patterns(options.trace_dir)
    results = []
    for trace in options.traces:
        path = trace_path(trace, flowgauge, options)
        if path is None:
            continue
        results.append(measure_trace(trace, path, flowgauge, options))
    if not results:
        sys.exit("bench: no trace could be made; is `flowgauge generate` built?")
    text = document(results, flowgauge, options).replace(os.path.expanduser("~") + "/", "~/")
    print(text)
    if options.write:
        with open(options.write, "w") as file:
            file.write(text)
        print(f"written to {options.write}", file=sys.stderr)
    failed = [row for result in results for row in result["targets"] if not row["passed"]]
    sys.exit(1 if failed and options.strict else 0)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=5, help="rounds (5)")
    parser.add_argument("--traces", default=",".join(TRACES), help="which of " + ", ".join(TRACES))
    parser.add_argument("--work", default="read,flows,streams,match", help="which kinds of work")
    parser.add_argument("--tools", help="only tools whose name contains one of these (comma separated)")
    parser.add_argument("--no-peers", action="store_true", help="only flowgauge and the libpcap loop")
    parser.add_argument("--slow", action="store_true", help="tshark as well (minutes on large traces)")
    parser.add_argument("--trace-dir", default=os.path.join(CACHE, "traces"), help="where traces are kept")
    parser.add_argument("--corpora", default=os.environ.get("FLOWGAUGE_CORPORA", os.path.join(ROOT, "..", "shared", "corpora")))
    parser.add_argument("--flowgauge", help="the binary to measure (default: built here, release)")
    parser.add_argument("--no-setup", dest="setup", action="store_false", help="peers are built already")
    parser.add_argument("--time-limit", type=float, default=120, help="seconds of wall time for one process")
    parser.add_argument("--write", default=os.path.join(ROOT, "docs", "benchmarks.md"), help="where the tables go (docs/benchmarks.md; empty: only printed)")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a target is missed")
    options = parser.parse_args()
    options.traces = options.traces.split(",")
    options.work = options.work.split(",")
    return options


def build_flowgauge():
    build = ["cargo", "build", "--release", "--quiet"]
    subprocess.run([*build, "--package", "flowgauge-cli", "--bin", "flowgauge"], cwd=ROOT, check=True)
    subprocess.run([*build, "--package", "flowgauge-capture", "--example", "decode"], cwd=ROOT, check=True)
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    return os.path.join(target, "release", "flowgauge")


def write_patterns(folder):
    """The patterns of `match`, in the forms its tools read."""
    for form, name in PATTERNS.items():
        PATTERNS[form] = os.path.join(folder, name)
    patterns.write(patterns.patterns(patterns.COUNT, SEED), **PATTERNS)


def trace_path(trace, flowgauge, options):
    """The capture of that name, made when absent; None with a printed reason when it cannot be."""
    for extension in (".pcap", ".pcapng"):
        path = os.path.join(options.trace_dir, trace + extension)
        if os.path.exists(path):
            return path
    path = os.path.join(options.trace_dir, trace + ".pcap")
    if trace == "real":
        if not os.path.isdir(options.corpora):
            note("SKIPPED real: no corpora (set FLOWGAUGE_CORPORA)")
            return None
        captures, packets = real.make(options.corpora, path, REAL_COPIES)
        note(f"real: {captures} captures, {packets} packets")
        return path
    note(f"generating {trace}")
    command = [flowgauge, "generate", "--preset", trace, "--seed", str(SEED), "-w", path]
    if subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
        note(f"SKIPPED {trace}: {' '.join(command)} failed")
        return None
    return path


def truth_of(path):
    """The totals the generator states of the capture, or {}: they stand before the long lists."""
    stem = os.path.splitext(path)[0]
    for candidate in (path + ".truth.json", stem + ".truth.json", path + ".json", stem + ".json"):
        if os.path.exists(candidate):
            with open(candidate) as file:
                found = re.search(r'"totals":\s*(\{[^{}]*\})', file.read(1 << 16))
            return json.loads(found.group(1)) if found else {}
    return {}


def expected_stream_bytes(totals):
    """TCP bytes a perfect reassembler can deliver: what was sent less what is not in the capture."""
    if "tcp_stream_bytes" not in totals:
        return None
    return totals["tcp_stream_bytes"] - totals.get("tcp_missing_bytes", 0)


def measure_trace(trace, path, flowgauge, options):
    warm(path)
    size = os.path.getsize(path)
    bin_dir = os.path.join(CACHE, "bench")
    tools = [tool for tool in TOOLS if wanted(tool, options) and tool.available(flowgauge, bin_dir)]
    runs = {tool.name: [] for tool in tools}
    outputs = {}
    dead = {}
    for round_number in range(options.runs):
        for tool in tools:
            if tool.name in dead:
                continue
            note(f"{trace} {round_number + 1}/{options.runs} {tool.name}")
            with tempfile.TemporaryDirectory(dir=scratch(), prefix="flowgauge-bench-") as work_dir:
                command = tool.command(flowgauge, bin_dir, path, work_dir)
                run = execute(bin_dir, command, tool.environment, options.time_limit)
                if run["status"] not in tool.good_status:
                    dead[tool.name] = run["failure"]
                    note(f"  {tool.name} failed: {run['failure']}")
                    continue
                runs[tool.name].append(run)
                if tool.name not in outputs:
                    outputs[tool.name] = tool.read_result(run["stdout"], run["stderr"], work_dir)
    base = runs[BASELINE]
    rows = []
    for tool in tools:
        if not runs[tool.name]:
            rows.append({"tool": tool, "failed": dead.get(tool.name, "no run")})
            continue
        # Ratio within the round: the loop of the same round met the same machine.
        ratios = [run["cpu"] / max(base[index]["cpu"], 1e-6) for index, run in enumerate(runs[tool.name])]
        rows.append({
            "tool": tool,
            "ratio": statistics.median(run["cpu"] for run in runs[tool.name]) / statistics.median(run["cpu"] for run in base),
            "low": min(ratios),
            "high": max(ratios),
            "cpu": statistics.median(run["cpu"] for run in runs[tool.name]),
            "memory": max(run["memory"] for run in runs[tool.name]),
            "result": outputs.get(tool.name, {}),
        })
    truth = truth_of(path)
    packets = outputs.get(BASELINE, {}).get("packets")
    return {
        "trace": trace,
        "path": path,
        "size": size,
        "packets": packets,
        "rows": rows,
        "stream_bytes": expected_stream_bytes(truth),
        "udp_bytes": truth.get("udp_payload_bytes", 0) - truth.get("udp_missing_bytes", 0),
        "targets": targets_of(trace, rows),
    }


def wanted(tool, options):
    if tool.name == BASELINE:
        return True
    if tool.slow and not options.slow:
        return False
    if options.no_peers and not tool.ours:
        return False
    if options.tools and not any(part in tool.name for part in options.tools.split(",")):
        return False
    return tool.work in options.work


def targets_of(trace, rows):
    found = []
    for (work, tool_name), limits in TARGETS.items():
        if trace not in limits:
            continue
        for row in rows:
            if row["tool"].name == tool_name and "ratio" in row:
                found.append({
                    "work": work,
                    "tool": tool_name,
                    "limit": limits[trace],
                    "ratio": row["ratio"],
                    "passed": row["ratio"] <= limits[trace],
                })
    return found


def execute(bin_dir, command, environment, time_limit):
    """Runs one process to its end; user + system seconds, peak resident MB, output."""
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr, tempfile.NamedTemporaryFile("r") as cost:
        subprocess.run(
            [os.path.join(bin_dir, "measure"), cost.name, str(int(time_limit)), *command.argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if command.discard_output else stdout,
            stderr=stderr,
            env={**os.environ, **environment},
            check=True,
        )
        status, user, system, memory = (int(word) for word in cost.read().split())
        stdout.seek(0)
        stderr.seek(0)
        errors = stderr.read().decode(errors="replace").strip().splitlines()
        return {
            "status": status,
            "cpu": (user + system) / 1e6,
            "memory": memory / 1024,
            "stdout": stdout.read(1 << 20).decode(errors="replace"),
            "stderr": "\n".join(errors),
            "failure": f"exit {status}: {errors[-1] if errors else ''}",
        }


def scratch():
    """A folder in memory where there is one: the tools are measured, not the disk."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def warm(path):
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass


def note(text):
    print(text, file=sys.stderr, flush=True)


# --- the page -----------------------------------------------------------------------------------


def document(results, flowgauge, options):
    lines = ["# Benchmarks", ""]
    lines += [
        "Written by `make bench` (`bench/run.py`). Each tool is a complete process with one core's worth of work; the tools take turns,",
        "reading from the page cache. Cost is user + system CPU time as a **ratio to a libpcap read loop over the same file in the same",
        "run** (= 1.0): the ratio of the medians, and in brackets the lowest and highest ratio of a single round.",
        "",
    ]
    lines += machine(flowgauge, options) + [""]
    lines += targets_table(results)
    for work, title in WORK_TITLES.items():
        lines += work_table(work, title, results)
    lines += correctness_table(results)
    lines += matches_table(results)
    lines += commands(results, flowgauge)
    return "\n".join(lines).rstrip() + "\n"


def machine(flowgauge, options):
    model = "unknown processor"
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    with open("/proc/meminfo") as file:
        memory = int(file.readline().split()[1]) // (1 << 20)
    load = os.getloadavg()[0]
    lines = [
        f"- Date: {datetime.date.today().isoformat()}; {options.runs} rounds; load average at the end {load:.1f}",
        f"- Machine: {model}, {os.cpu_count()} cores, {memory} GB, Linux {platform.release()}",
        f"- Versions: flowgauge {version([flowgauge, '--version'])}; " + package_versions(),
    ]
    return lines


def version(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
        return ((done.stdout or done.stderr).strip().splitlines() or ["?"])[0].replace("flowgauge ", "")
    except (OSError, subprocess.SubprocessError):
        return "?"


def package_versions():
    found = []
    for package in ("libpcap0.8", "libnids1.21", "libvectorscan5", "tcpflow", "softflowd", "nfdump", "argus-server", "tshark"):
        done = subprocess.run(["dpkg-query", "-W", "-f=${Version}", package], capture_output=True, text=True)
        if done.returncode == 0 and done.stdout:
            found.append(f"{package} {done.stdout}")
    found.append("crate flowscope 0.22.0")
    return ", ".join(found)


def targets_table(results):
    rows = [(result["trace"], row) for result in results for row in result["targets"]]
    if not rows:
        return []
    lines = ["## Targets", "", "| trace | tool and task | target | measured | |", "|---|---|---|---|---|"]
    for trace, row in rows:
        verdict = "pass" if row["passed"] else "**missed**"
        lines.append(f"| {trace} | {row['tool']}: {WORK_TITLES[row['work']]} | {row['limit']} | {row['ratio']:.2f} | {verdict} |")
    return lines + [""]


def work_table(work, title, results):
    names = []
    for result in results:
        for row in result["rows"]:
            if row["tool"].work == work and row["tool"].name not in names:
                names.append(row["tool"].name)
    if not names:
        return []
    lines = [f"## {title[0].upper() + title[1:]}", ""]
    lines.append("| tool | " + " | ".join(f"{r['trace']}" for r in results) + " | peak memory, MB |")
    lines.append("|---|" + "---|" * (len(results) + 1))
    for name in names:
        cells, memory = [], []
        for result in results:
            row = next((row for row in result["rows"] if row["tool"].name == name), None)
            if row is None:
                cells.append("")
                memory.append("")
            elif "failed" in row:
                cells.append("failed")
                memory.append("-")
            else:
                cells.append(f"{row['ratio']:.2f} ({row['low']:.2f}-{row['high']:.2f})")
                memory.append(f"{row['memory']:.0f}")
        shown = f"**{name}**" if name.startswith("flowgauge") else name
        lines.append(f"| {shown} | " + " | ".join(cells) + " | " + " / ".join(memory) + " |")
    return lines + [""]


def correctness_table(results):
    lines = []
    for result in results:
        for row in result["rows"]:
            delivered = row.get("result", {}).get("bytes") if row["tool"].work == "streams" else None
            if delivered is None:
                continue
            expected = result["stream_bytes"]
            if expected and row["tool"].ours:
                # Ours delivers UDP payloads as well.
                expected += result["udp_bytes"]
            share = f"{100 * delivered / expected:.3f} %" if expected else "unknown"
            exact = "" if not expected else ("exact" if delivered == expected else f"{delivered - expected:+,}")
            truth = f"{expected:,}" if expected else "-"
            lines.append(f"| {result['trace']} | {row['tool'].name} | {delivered:,} | {truth} | {share} | {exact} |")
    if not lines:
        return []
    head = [
        "## Stream bytes delivered",
        "",
        "Compared with the generator's ground truth (captured bytes only: in `loss`, frames are missing), for TCP and, in flowgauge, UDP",
        "payloads. flowscope discards segments that begin before the next expected byte and never skips a gap; our driver trims them,",
        "otherwise a fifth of the bytes would be missing.",
        "",
        "| trace | tool | bytes delivered | ground truth | share | difference |",
        "|---|---|---|---|---|---|",
    ]
    return head + lines + [""]


def matches_table(results):
    lines = []
    for result in results:
        found = {row["tool"].name: row.get("result", {}) for row in result["rows"] if row["tool"].work == "match"}
        peer = found.get("libnids + Vectorscan", {})
        for name, values in found.items():
            if "matches" not in values:
                continue
            same = ""
            if "matches" in peer and values is not peer:
                same = "equal" if (values["matches"], values["sum"]) == (peer["matches"], peer["sum"]) else "**different**"
            lines.append(f"| {result['trace']} | {name} | {values['matches']:,} | {values.get('all_matches', ''):,} | {same} |"
                         if "all_matches" in values else f"| {result['trace']} | {name} | {values['matches']:,} | | |")
    if not lines:
        return []
    head = [
        "## Matches found",
        "",
        "Matches in TCP streams (UDP is not searched with libnids), compared by number and by the sum of pattern number times end",
        "position. On `late` and `loss`, libnids loses bytes and therefore matches; on `real`, it tracks fewer streams.",
        "",
        "| trace | tool | in TCP | in all streams | compared with libnids |",
        "|---|---|---|---|---|",
    ]
    return head + lines + [""]


def commands(results, flowgauge):
    lines = ["## Traces and commands", ""]
    for result in results:
        base = next((row for row in result["rows"] if row["tool"].name == BASELINE and "cpu" in row), None)
        seconds = f", libpcap loop {base['cpu']:.2f} s" if base else ""
        packets = f"{result['packets']:,} packets" if result["packets"] else "? packets"
        lines.append(f"- `{result['trace']}`: {packets}, {result['size'] / 1e6:,.0f} MB{seconds}")
    lines.append("")
    seen = []
    for result in results:
        for row in result["rows"]:
            tool = row["tool"]
            if tool.name in seen:
                continue
            seen.append(tool.name)
            command = tool.command("target/release/flowgauge" if tool.name == "flowgauge decode" else "flowgauge", "bench", "FILE", "DIR")
            environment = "".join(f"{key}={value} " for key, value in tool.environment.items())
            suffix = " > /dev/null" if command.discard_output else ""
            lines.append(f"- {tool.name}: `{environment}{' '.join(command.argv)}{suffix}`")
    return lines


if __name__ == "__main__":
    main()
