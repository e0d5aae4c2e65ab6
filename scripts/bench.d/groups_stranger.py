"""1,000 connections of no use to a port, within some seconds: `groups_stranger.py HOST PORT SECONDS`. Port 0: to one of its own.

The connections stay open as long as the other end lets them. Prints how many bytes they got.
"""

import socket
import sys
import time

COUNT = 1000
WORDS = (b"", b"GET / HTTP/1.0\r\n\r\n", b"rlcalls\n", bytes(200))


def main(host, port, seconds):
    own = None
    if port == 0:
        # The program is as busy with connections to itself.
        own = socket.create_server((host, 0), backlog=COUNT)
        port = own.getsockname()[1]
    open_, began = [], time.monotonic()
    for number in range(COUNT):
        sock = socket.create_connection((host, port))
        sock.setblocking(False)
        try:
            sock.send(WORDS[number % len(WORDS)])
        except OSError:
            pass  # Closed already.
        open_.append(sock)
        if own is not None:
            own.accept()[0].close()
        time.sleep(max(0.0, began + seconds * number / COUNT - time.monotonic()))
    got = 0
    for sock in open_:
        try:
            got += len(sock.recv(100))
        except OSError:
            pass
    print(got, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
