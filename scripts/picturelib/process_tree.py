"""The processes of a job on two hosts, and what connects them."""

from .canvas import Canvas

BOX = 36


class Host:
    """A panel with the tree of a host."""

    def __init__(self, canvas, x, width, title):
        self.canvas = canvas
        canvas.rect(x, 34, width, 330, "panel")
        canvas.text(x + 14, 58, title, "muted", 13)

    def agent_tree(self, x, y, ranks):
        """Guardian, agent, init and ranks; the guardian's box is at x and y."""
        c = self.canvas
        c.path([(x + 75, y + BOX), (x + 75, y + 80)])
        c.path([(x + 75, y + 80 + BOX), (x + 75, y + 142)])
        c.path([(x + 10, y + 142), (x + 226, y + 142)])
        for at in (x + 10, x + 118, x + 226):
            c.path([(at, y + 142), (at, y + 160)])
        c.box(x, y, 150, BOX, "rlaunch-guard", "purple", "purple")
        c.box(x, y + 80, 150, BOX, "rlaunch-agent", "blue", "blue")
        c.box(x - 44, y + 160, 106, BOX, "rlaunch-init", "box")
        c.box(x + 68, y + 160, 100, BOX, ranks[0], "green", "green")
        c.box(x + 176, y + 160, 100, BOX, ranks[1], "green", "green")


def draw():
    """The picture."""
    c = Canvas(446, "Processes of an rlaunch job on two hosts")
    c.text(20, 22, "rlaunch -n 4 -H login:2,node1:2 ./train", "text", 14, mono=True)
    left, right = Host(c, 20, 370, "login, where you start rlaunch"), Host(c, 430, 350, "node1")
    # The launcher's own host.
    c.path([(155, 104), (155, 150)])
    c.path([(155, 128), (335, 128), (335, 150)])
    c.path([(230, 86), (262, 86)])
    left.agent_tree(80, 150, ("rank 0", "rank 1"))
    c.box(80, 68, 150, BOX, "rlaunch", "blue", "blue")
    c.box(262, 68, 118, BOX, "rlaunch-ssh")
    c.box(290, 150, 90, BOX, "ssh")
    # Edge and lifeline of this host.
    c.path([(80, 82), (34, 110), (34, 222), (80, 248)], "blue", 2.5, curve=True)
    c.path([(136, 104), (136, 150)], "purple", 2, dashed=True)
    # node1.
    c.path([(565, 104), (565, 150)])
    right.agent_tree(490, 150, ("rank 2", "rank 3"))
    c.box(490, 68, 150, BOX, "sshd")
    c.path([(546, 104), (546, 150)], "purple", 2, dashed=True)
    c.path([(490, 90), (446, 112), (446, 222), (490, 248)], "blue", 2.5, curve=True)
    # What connects the hosts.
    c.path([(380, 168), (412, 168), (412, 80), (490, 80)], "blue", 2.5)
    _legend(c)
    return c.svg()


def _legend(c):
    y = 392
    c.path([(24, y), (60, y)])
    c.text(70, y + 5, "parent and child", size=13)
    c.path([(220, y), (256, y)], "blue", 2.5)
    c.text(266, y + 5, "edge: messages, output, input", size=13)
    c.path([(494, y), (530, y)], "purple", 2, dashed=True)
    c.text(540, y + 5, "lifeline: its end is the message", size=13)
    c.text(24, y + 32, "Each host has one guardian and one agent. If launcher or agent dies, the guardian ends every rank of its host.",
           "muted", 13)
