#!/usr/bin/env python3
"""Makes a CUDA build of torch importable where there is no CUDA: stub_cuda.py VENV

PyPI's torch for Linux names some twenty libraries of NVIDIA, gigabytes that a test of gloo and of the TCPStore has no use for. Each of
them becomes an empty library here, and all functions that torch wants of them stand in one that is preloaded, answering
cudaErrorNoDevice. (One for all, because glibc refuses a library without versions where a versioned symbol of that very library is
asked for.) VENV/cpu/python3 is the interpreter with them; prints its path.
"""

import os
import pathlib
import re
import stat
import subprocess
import sys

OF_NVIDIA = re.compile(r"^_*(cu|nccl|nvrtc|nvshmem|nvJit|nvml|nvtx)")
LIBRARY = re.compile(r"NEEDED.*\[(lib(?:cu|nv|nccl)[^\]]*)\]")


def undefined(libraries):
    """The functions of NVIDIA that these libraries need, and that none of them has."""
    table = subprocess.run(["nm", "-D", *libraries], check=True, capture_output=True, text=True).stdout
    wanted, there = set(), set()
    for line in table.splitlines():
        kind, _, name = line.strip().rpartition(" ")
        name = name.partition("@")[0]
        (wanted if kind.endswith("U") else there).add(name)
    return sorted(name for name in wanted - there if OF_NVIDIA.match(name))


def function(name):
    """A function that fails as CUDA's does without a device."""
    if re.search(r"Get(Last)?Error(String|Name)$|ErrorString$", name):
        return f'const char *{name}(void) {{ return "no CUDA here"; }}'
    if re.search(r"(Get|Peek(At)?)LastError$", name):
        return f"int {name}(void) {{ return 0; }}"
    if name.startswith("__cudaRegister"):
        return f"void *{name}(void) {{ static long all[64]; return all; }}"
    return f"int {name}(void) {{ return 100; }}"


def compile_library(words, out, source):
    """Compiles a shared object."""
    command = ["cc", "-shared", "-fPIC", "-w", "-x", "c", "-o", str(out), *words, "-"]
    subprocess.run(command, check=True, input=source, text=True)


def main():
    """Makes the libraries and the interpreter."""
    home = pathlib.Path(sys.argv[1]).resolve()
    torch = next(home.glob("lib/python3*/site-packages/torch"))
    libraries = [str(path) for path in [*torch.glob("lib/*.so*"), *torch.glob("_C*.so")]]
    stubs = home / "stubs"
    stubs.mkdir(exist_ok=True)
    headers = subprocess.run(["readelf", "-d", *libraries], check=True, capture_output=True, text=True).stdout
    for name in sorted(set(LIBRARY.findall(headers)) - {os.path.basename(library) for library in libraries}):
        compile_library([f"-Wl,-soname,{name}"], stubs / name, "")
    compile_library([], stubs / "functions.so", "\n".join(map(function, undefined(libraries))) + "\n")
    python = home / "cpu" / "python3"
    python.parent.mkdir(exist_ok=True)
    python.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH="{stubs}" LD_PRELOAD="{stubs}/functions.so" exec "{home}/bin/python" "$@"\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    print(python)


if __name__ == "__main__":
    main()
