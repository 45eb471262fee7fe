# SPDX-License-Identifier: Apache-2.0
"""A crowd of strangers: flooder.py SOCKETS PORT...

Keeps so many connections to each port and replaces those that are closed. One in three says nothing,
one says a byte of a TLS handshake now and then, and one says a whole greeting, made with another
secret, as soon as it is connected. Prints "ready" when the crowd is complete; ends when its standard
input does, and prints how often it knocked and how many greetings it said."""

import resource
import select
import socket
import sys
import time

from intruder import wrong_greeting

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
    greeting = wrong_greeting()
    silent, slow, greeted = set(), set(), set()
    knocks = greetings = 0
    told = False
    while True:
        for port in ports:
            for _ in range(count - sum(1 for where, _ in crowd.values() if where == port)):
                peer = knock(port)
                crowd[peer.fileno()] = (port, peer)
                (silent, slow, greeted)[knocks % 3].add(peer.fileno())
                poll.register(peer, select.POLLOUT if knocks % 3 == 2 else select.POLLIN)
                knocks += 1
        if not told:
            print("ready", flush=True)
            told = True
        for number in slow:
            try:
                crowd[number][1].send(HEAD[knocks % len(HEAD):][:1])
            except OSError:
                pass
        until = time.monotonic() + PAUSE_S
        while (left := until - time.monotonic()) > 0:
            for number, events in poll.poll(left * 1000):
                if number == 0:
                    print(f"{knocks} knocks, {greetings} greetings", flush=True)
                    return
                if number in greeted and events == select.POLLOUT:
                    poll.modify(number, select.POLLIN)
                    try:
                        greetings += crowd[number][1].send(greeting) > 0
                    except OSError:
                        pass
                    continue
                poll.unregister(number)
                for kind in (silent, slow, greeted):
                    kind.discard(number)
                crowd.pop(number)[1].close()


main()
