# SPDX-License-Identifier: Apache-2.0
"""What a ps-lite program reads from its environment, checked in all three roles; and the way its
processes meet: the scheduler listens at the root, everybody reports there and waits for its word."""

import os
import socket

e = os.environ
role = e["DMLC_ROLE"]
workers, servers = int(e["DMLC_NUM_WORKER"]), int(e["DMLC_NUM_SERVER"])
root = (e["DMLC_PS_ROOT_URI"], int(e["DMLC_PS_ROOT_PORT"]))
socket.inet_aton(root[0])
assert "PORT" not in e
assert e["DMLC_NODE_HOST"] == e["PSD_ADDR"]
assert e["DMLC_INTERFACE"] and e["DMLC_JOB_CLUSTER"] in ("local", "ssh")
assert e["DMLC_NUM_ATTEMPT"] == "0" and e["DMLC_ENABLE_RDMA"] == "0"
assert e["DMLC_TASK_ID"] == e["PSD_RANK"] and e["PSD_ROLE"] == role
assert "PSD_MASTER_ADDRESS" not in e
if role == "worker":
    assert e["DMLC_WORKER_ID"] == e["DMLC_RANK"] == e["PSD_RANK"] and "DMLC_SERVER_ID" not in e
    assert e["BYTEPS_LOCAL_RANK"] == e["PSD_LOCAL_RANK"]
    assert e["BYTEPS_LOCAL_SIZE"] == e["PSD_LOCAL_SIZE"]
elif role == "server":
    assert e["DMLC_SERVER_ID"] == e["DMLC_RANK"] == e["PSD_RANK"] and "DMLC_WORKER_ID" not in e
else:
    assert role == "scheduler" and "DMLC_RANK" not in e

if role == "scheduler":
    assert root[1] == int(e["PSD_PORT"])
    listener = socket.create_server(root, backlog=64)
    listener.settimeout(60)
    peers = [listener.accept()[0] for _ in range(workers + servers)]
    names = sorted(peer.recv(64).decode() for peer in peers)
    assert names == sorted([f"worker{i}" for i in range(workers)] +
                           [f"server{i}" for i in range(servers)]), names
    for peer in peers:
        peer.sendall(b"go")
else:
    while True:
        try:
            peer = socket.create_connection(root, 60)
            break
        except ConnectionRefusedError:
            pass  # the scheduler has not come so far
    peer.sendall(f"{role}{e['DMLC_RANK']}".encode())
    assert peer.recv(2) == b"go"
print(role, "met", workers, "and", servers)
