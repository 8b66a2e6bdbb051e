#!/usr/bin/env python3
"""Measures Husk beside other ways to keep a program's changes away from the host's files.

    examples/beside/measure.py [--rounds N] [--husk PATH] [--json]

It uses what is installed and says what is missing. All files are in a new directory in /dev/shm, so
that no system waits for a disk; but those for gVisor, which shows no /dev/shm, are in /var/tmp, and
its changes in its own memory. In each round every system runs the same work once, in turn; the
table shows medians. No command may take longer than COMMAND_S, and nothing begins after TOTAL_S.
The page docs/beside-others.md explains the rows.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from io import BytesIO
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMMAND_S = 120
TOTAL_S = 900
ENTRIES = 5
ROWS = [
    ("enter", "enter, run /bin/true, leave", "ms"),
    ("start", "start /bin/true inside", "ms"),
    ("create", "create, close, unlink a file", "us"),
    ("stat", "stat", "us"),
    ("untar", "unpack 3,600 files", "ms"),
    ("make", "make of a small C project", "ms"),
    ("git", "git status, 3,600 files", "ms"),
]
NS = {"us": 1e3, "ms": 1e6}

# Mounts an overlay with its changes on a tmpfs over directory $1, and runs the rest there.
OVERLAY = """
lower=$1; shift
mount -t tmpfs husk-beside "$SCRATCH" && mkdir "$SCRATCH/upper" "$SCRATCH/work" && {mount}
cd "$lower" && exec "$@"
"""
OPTIONS = '-o "lowerdir=$lower,upperdir=$SCRATCH/upper,workdir=$SCRATCH/work" "$lower"'


def installed(name):
    """A program that can be run, or None."""
    return shutil.which(name)


def unshared(script):
    """Runs a script in a mount namespace: root's own, or one of a user namespace."""
    flags = ["-m"] if os.geteuid() == 0 else ["-Urm"]
    return lambda tree: ["unshare", *flags, "sh", "-ec", script, "sh", str(tree)]


def bubblewrap():
    """bwrap with a tmpfs over the tree: by itself from 0.11 on, over a mounted overlay before."""
    alone = ["bwrap", "--dev-bind", "/", "/"]
    told = subprocess.run(["bwrap", "--help"], capture_output=True, text=True, check=False)
    if "--tmp-overlay" in told.stdout + told.stderr:
        return lambda tree: [*alone, "--overlay-src", tree, "--tmp-overlay", tree, "--chdir", tree]
    return lambda tree: [*overlayfs(tree), *alone, "--chdir", tree]


overlayfs = unshared(OVERLAY.format(mount="mount -t overlay overlay " + OPTIONS))
fuse = unshared(OVERLAY.format(mount="fuse-overlayfs " + OPTIONS))


def gvisor(tree):
    """runsc with the host's files read-only below a tmpfs, without a network."""
    rights = [] if os.geteuid() == 0 else ["--rootless"]
    return ["runsc", *rights, "--network=none", "--ignore-cgroups", "do", "--cwd", tree]


def systems(husk):
    """Name, program that is needed, and how a command of it begins, given the tree."""
    return [
        ("tmpfs", "sh", lambda tree: ["env"]),
        ("husk", husk, lambda tree: [husk, "run", "--discard", "--overlay", tree, "--"]),
        ("overlayfs", "unshare", overlayfs),
        ("fuse-overlayfs", "fuse-overlayfs", fuse),
        ("bubblewrap", "bwrap", bubblewrap() if installed("bwrap") else None),
        ("proot", "proot", lambda tree: ["proot", "-w", tree]),
        ("gVisor", "runsc", gvisor),
        ("try", "try", lambda tree: ["try", "-n"]),
    ]


def fill(tree):
    """Makes what the work needs: the probe, an archive, a project, a repository."""
    made = subprocess.run(["cc", "-O2", "-o", tree / "probe", HERE / "probe.c"], check=False)
    if made.returncode != 0:
        sys.exit("measure.py: cannot build probe.c: a C compiler is needed (apt install gcc)")
    with tarfile.open(tree / "archive.tar", "w") as archive:
        for number in range(3600):
            text = f"line of file {number}\n".encode() * (number % 400)
            entry = tarfile.TarInfo(f"part-{number % 60}/file-{number}")
            entry.size = len(text)
            archive.addfile(entry, BytesIO(text))
    built = shutil.ignore_patterns("build")
    shutil.copytree(HERE.parent / "hello-c", tree / "hello-c", ignore=built)
    git = ["git", "-C", tree / "repository", "-c", "user.name=x", "-c", "user.email=x@example.org"]
    (tree / "repository").mkdir()
    subprocess.run(["tar", "-xf", tree / "archive.tar", "-C", tree / "repository"], check=True)
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], check=True)


def run(words, tree, scratch):
    """Runs a command in the tree; its output, and how long it took, ns. None: it failed."""
    begin = time.monotonic_ns()
    environment = {**os.environ, "SCRATCH": str(scratch)}
    try:
        ended = subprocess.run(words, cwd=tree, env=environment, stdin=subprocess.DEVNULL,
                               capture_output=True, text=True, timeout=COMMAND_S, check=False)
    except subprocess.TimeoutExpired:
        return None, f"took longer than {COMMAND_S} s"
    took = time.monotonic_ns() - begin
    if ended.returncode != 0:
        return None, (ended.stderr.strip().splitlines() or ["it failed"])[-1]
    return ended.stdout, took


def once(begin, tree, scratch):
    """One round of one system: nanoseconds by row, or the reason why there are none."""
    entries = []
    for _ in range(ENTRIES):
        told, took = run([*map(str, begin), "/bin/true"], tree, scratch)
        if told is None:
            return took
        entries.append(took)
    told, took = run([*map(str, begin), str(tree / "probe")], tree, scratch)
    if told is None:
        return took
    found = {name: float(ns) for name, ns in map(str.split, told.splitlines())}
    return {"enter": statistics.median(entries), **found}


def measure(rounds, husk):
    """Nanoseconds by system and row, a list each; and why others have none."""
    figures, missing, end = {}, {}, time.monotonic() + TOTAL_S
    new = tempfile.TemporaryDirectory
    with new(prefix="husk-beside-", dir="/dev/shm") as shared, new(dir="/var/tmp") as disk:
        scratch = Path(shared, "scratch")
        scratch.mkdir()
        sources = Path(shared, "source")
        sources.mkdir()
        fill(sources)
        for _ in range(rounds):
            for name, needed, begin in systems(husk):
                if name in missing or time.monotonic() > end:
                    continue
                if not installed(needed):
                    missing[name] = f"{needed} is not installed"
                    continue
                tree = Path(disk if name == "gVisor" else shared, "tree")
                shutil.copytree(sources, tree, symlinks=True)
                found = once(begin(tree), tree, scratch)
                shutil.rmtree(tree)
                if isinstance(found, str):
                    missing[name] = found
                    figures.pop(name, None)
                    continue
                for row, ns in found.items():
                    figures.setdefault(name, {}).setdefault(row, []).append(ns)
    return figures, missing


def processor():
    """What the processor calls itself."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), "?")


def table(medians):
    """A table in Markdown."""
    names = list(medians)
    print("| | " + " | ".join(names) + " |")
    print("|---|" + "---:|" * len(names))
    for row, title, unit in ROWS:
        cells = (medians[name].get(row) for name in names)
        shown = ("-" if ns is None else f"{float(f'{ns / NS[unit]:.3g}'):g}" for ns in cells)
        print(f"| {title}, {unit} | " + " | ".join(shown) + " |")


def main():
    """Reads the options, measures, prints."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--husk", default=str(HERE.parent.parent / "target/release/husk"))
    options.add_argument("--json", action="store_true", help="print one JSON document")
    chosen = options.parse_args()
    before = os.getloadavg()[0]
    figures, missing = measure(chosen.rounds, chosen.husk)
    medians = {name: {row: statistics.median(all_ns) for row, all_ns in rows.items()}
               for name, rows in figures.items()}
    machine = f"{processor()}, {os.cpu_count()} cores, Linux {platform.release()}"
    load = f"load {before:.1f} before, {os.getloadavg()[0]:.1f} after"
    counts = [len(rows["enter"]) for rows in figures.values()]
    if chosen.json:
        print(json.dumps({"machine": machine, "load": load, "ns": medians, "missing": missing}))
        return
    print(f"{machine}; {load}; medians of {min(counts, default=0)} rounds\n")
    table(medians)
    for name, why in missing.items():
        print(f"\n{name}: not measured: {why}")


if __name__ == "__main__":
    main()
