"""Command lines of the launchers for the same job."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Launcher:
    """A launcher under test: its name in the table and the words that come before the program."""

    name: str
    words: tuple
    label_words: tuple = ()
    grace_words: tuple = ()
    count_option: str = "-n"

    def command(self, ranks, program, label=False, grace=False):
        """The command line that starts `program` on `ranks` ranks."""
        extra = (self.label_words if label else ()) + (self.grace_words if grace else ())
        return [*self.words, *extra, self.count_option, str(ranks), *map(str, program)]

    def with_words(self, name, *words):
        """The same launcher with more options, under another name."""
        return dataclasses.replace(self, name=name, words=self.words + words)


def rlaunch(path):
    """rlaunch itself."""
    return Launcher("rlaunch", (path,), ("-l",), ("--grace", "0.5s"))


def hydra(path):
    """MPICH's process manager."""
    return Launcher("hydra", (path,), ("-prepend-rank",))


def prterun(path):
    """Open MPI's. The options let it run as root and with more ranks than cores, as the others do unasked."""
    words = (path, "--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE")
    return Launcher("prterun", words, ("--output", "tag"))


def torchrun(path):
    """PyTorch's. Old versions look at their ranks every 5 s by default, later ones every 0.1 s."""
    return Launcher("torchrun", (path, "--no_python", "--monitor_interval", "0.1"), count_option="--nproc_per_node")
