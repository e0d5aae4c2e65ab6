"""The architecture that a package is for, and the tools that make it."""

import os
import platform
import shutil
import subprocess

KNOWN = ("x86_64", "aarch64")


class Machine:
    """An architecture. Another one than this machine's needs a target of Rust and a cross compiler."""

    def __init__(self, arch):
        self.arch = arch
        self.is_here = arch == platform.machine()
        self.triple = f"{arch}-unknown-linux-gnu"
        self.tools = "" if self.is_here else f"{arch}-linux-gnu-"

    def tool(self, name):
        """The name of a tool: cc, strip, readelf."""
        return name if self.is_here else self.tools + {"cc": "gcc"}.get(name, name)

    def cargo(self):
        """Words for cargo."""
        return [] if self.is_here else ["--target", self.triple]

    def environment(self):
        """The environment for cargo. RUSTFLAGS would replace the flags of .cargo/config.toml."""
        mine = {name: value for name, value in os.environ.items() if name not in ("RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS")}
        if not self.is_here:
            mine[f"CARGO_TARGET_{self.triple.upper().replace('-', '_')}_LINKER"] = self.tool("cc")
        return mine

    def missing(self):
        """What is to be installed before anything can be built, or None."""
        if self.is_here:
            return None
        if not shutil.which(self.tool("cc")):
            return f"there is no {self.tool('cc')} for {self.arch}: apt-get install gcc-{self.arch.replace('_', '-')}-linux-gnu"
        words = ("rustc", "--print", "sysroot")
        sysroot = subprocess.run(words, check=True, text=True, stdout=subprocess.PIPE).stdout.strip()
        if not os.path.isdir(f"{sysroot}/lib/rustlib/{self.triple}/lib"):
            return f"Rust has no target {self.triple}: rustup target add {self.triple}"
        return None
