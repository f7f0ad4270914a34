#!/usr/bin/env python3
"""Compares the machine code of two builds, kernel by kernel, whatever the kernels are called.

    compare_sass.py OLD NEW [--only TEXT]

OLD and NEW are object files, libraries or executables with device code, or folders of object files.
A kernel of NEW is unchanged if some kernel of OLD for the same architecture has the same instructions
in the same order. Prints the kernels of NEW without such a twin and those of OLD that nobody matches;
exit code 1 if NEW has any without a twin. Needs cuobjdump and c++filt on the PATH.
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys

FUNCTION = re.compile(r"^\s*Function : (\S+)")
ARCHITECTURE = re.compile(r"^arch = (\S+)")
INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(.*?);")
ENCODING = re.compile(r"/\* (0x[0-9a-f]{16}) \*/")
SYMBOL = re.compile(r"\b_Z\w+")


def kernels(path: pathlib.Path) -> dict[tuple[str, str], tuple[str, ...]]:
    """Instructions with their encodings, by (architecture, mangled name)."""
    files = sorted(path.rglob("*.o")) if path.is_dir() else [path]
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for file in files:
        run = subprocess.run(["cuobjdump", "-sass", str(file)], capture_output=True, text=True, check=False)
        if run.returncode != 0 and path.is_file():
            sys.exit(f"cuobjdump cannot read {file}: {run.stderr.strip()}")
        architecture, name, lines = "", "", []
        for line in run.stdout.splitlines():
            if match := ARCHITECTURE.match(line):
                architecture = match[1]
            elif match := FUNCTION.match(line):
                if name:
                    found[architecture_of_name, name] = tuple(lines)
                architecture_of_name, name, lines = architecture, match[1], []
            elif name:
                text = INSTRUCTION.match(line)
                words = ENCODING.findall(line)
                if text or words:
                    lines.append(SYMBOL.sub("symbol", text[1] if text else "") + " ".join(words))
        if name:
            found[architecture_of_name, name] = tuple(lines)
    return found


def readable(name: str) -> str:
    run = subprocess.run(["c++filt", name], capture_output=True, text=True, check=False)
    return run.stdout.strip() or name


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("--only", default="", help="kernels whose mangled name contains this text")
    arguments = parser.parse_args()
    old, new = kernels(arguments.old), kernels(arguments.new)
    if not old or not new:
        sys.exit("no device code in " + str(arguments.new if old else arguments.old))
    by_code = collections.defaultdict(list)
    for (architecture, name), code in old.items():
        by_code[architecture, code].append(name)
    matched, changed = set(), []
    for (architecture, name), code in sorted(new.items()):
        if arguments.only not in name:
            continue
        twins = by_code.get((architecture, code))
        if twins:
            matched.update((architecture, twin) for twin in twins)
        else:
            changed.append((architecture, name, len(code)))
    gone = [key for key in sorted(old) if key not in matched and arguments.only in key[1]]
    for architecture, name, length in changed:
        print(f"changed or new: {architecture} {readable(name)} ({length} lines)")
    for architecture, name in gone:
        print(f"in the old build alone: {architecture} {readable(name)}")
    print(f"{len(new) - len(changed)} kernels unchanged, {len(changed)} changed or new, {len(gone)} in the old build alone")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
