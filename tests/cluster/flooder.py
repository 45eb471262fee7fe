# SPDX-License-Identifier: Apache-2.0
"""A crowd of strangers: flooder.py SOCKETS PORT...

Keeps so many connections to each port and replaces those that are closed. Every second one says
nothing, the others say a byte of a TLS handshake now and then. Prints "ready" when the crowd is
complete; ends when its standard input does."""

import resource
import select
import socket
import sys
import time

HEAD = b"\x16\x03\x01\x01\x00\x01\x00\x00\xfc\x03\x03"
PAUSE_S = 0.05


def knock(port):
    peer = socket.socket()
    peer.setblocking(False)
    peer.connect_ex(("127.0.0.1", port))
    return peer


def main():
    count, ports = int(sys.argv[1]), [int(word) for word in sys.argv[2:]]
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    poll = select.poll()
    poll.register(0, select.POLLIN)
    crowd = {}
    knocks = 0
    told = False
    while True:
        for port in ports:
            for _ in range(count - sum(1 for where, _ in crowd.values() if where == port)):
                peer = knock(port)
                knocks += 1
                crowd[peer.fileno()] = (port, peer)
                poll.register(peer, select.POLLIN)
        if not told:
            print("ready", flush=True)
            told = True
        for number, (_, peer) in list(crowd.items()):
            if number % 2:
                try:
                    peer.send(HEAD[knocks % len(HEAD):][:1])
                except OSError:
                    pass
        until = time.monotonic() + PAUSE_S
        while (left := until - time.monotonic()) > 0:
            for number, _ in poll.poll(left * 1000):
                if number == 0:
                    print(f"{knocks} connections", flush=True)
                    return
                poll.unregister(number)
                crowd.pop(number)[1].close()


main()
