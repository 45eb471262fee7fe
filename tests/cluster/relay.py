# SPDX-License-Identifier: Apache-2.0
"""Another user of the machine who passes connections on, byte for byte.

    relay.py pass PORT    listens on a port of its own and connects whoever comes to PORT
    relay.py squat PORT   takes PORT itself before its owner does, keeps the first who comes, frees
                          the port, and connects that one to the owner when it is there

Prints the port it listens on, then a line for each connection: "passed UP DOWN" (bytes to the
listener and back). Ends when its standard input does."""

import contextlib
import os
import socket
import sys
import threading
import time

NOBODY = 65534


def pump(source, sink, counts, index):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
            counts[index] += len(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def join(member, port):
    """Connects both until either closes; the listener may not be there yet."""
    deadline = time.monotonic() + 30
    while True:
        try:
            other = socket.create_connection(("127.0.0.1", port))
            break
        except OSError:
            if time.monotonic() > deadline:
                return
            time.sleep(0.01)
    counts = [0, 0]
    back = threading.Thread(target=pump, args=(other, member, counts, 1))
    back.start()
    pump(member, other, counts, 0)
    back.join()
    print("passed", *counts, flush=True)


def main():
    kind, port = sys.argv[1], int(sys.argv[2])
    if os.geteuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    listener = socket.create_server(("127.0.0.1", port if kind == "squat" else 0))
    print(listener.getsockname()[1], flush=True)
    if kind == "squat":
        member, _ = listener.accept()
        listener.close()
        join(member, port)
        threading.Event().wait()
    while True:
        member, _ = listener.accept()
        threading.Thread(target=join, args=(member, port), daemon=True).start()


main()
