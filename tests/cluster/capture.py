# SPDX-License-Identifier: Apache-2.0
"""Writes every frame that passes a network interface to a file: capture.py INTERFACE FILE

Prints "ready" once it listens; ends when its standard input does."""

import select
import socket
import sys

ALL_PROTOCOLS = 3
BUFFER_BYTES = 64 << 20
SO_RCVBUFFORCE = 33


def main():
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
    tap.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    tap.bind((sys.argv[1], 0))
    print("ready", flush=True)
    with open(sys.argv[2], "wb") as file:
        while True:
            ready, _, _ = select.select([tap, 0], [], [])
            if tap in ready:
                file.write(tap.recv(1 << 17))
            elif 0 in ready:
                return


main()
