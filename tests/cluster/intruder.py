# SPDX-License-Identifier: Apache-2.0
"""Somebody who wants into a job. Its TLS is OpenSSL through ctypes and its keys come from hmac: it
shares no line with the code under test, and so checks that the scheme is the documented one."""

import contextlib
import ctypes
import hashlib
import hmac
import random
import socket
import threading
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_long, c_size_t, c_ubyte, c_void_p

SSL = ctypes.CDLL("libssl.so.3")
TLS1_2, TLS1_3 = 0x0303, 0x0304
SET_MAX_PROTO_VERSION = 124
USE_SESSION = CFUNCTYPE(c_int, c_void_p, c_void_p, POINTER(c_void_p), POINTER(c_size_t),
                        POINTER(c_void_p))
FIND_SESSION = CFUNCTYPE(c_int, c_void_p, POINTER(c_ubyte), c_size_t, POINTER(c_void_p))

for _name, _result, _arguments in (
    ("TLS_client_method", c_void_p, ()),
    ("TLS_server_method", c_void_p, ()),
    ("SSL_CTX_new", c_void_p, (c_void_p,)),
    ("SSL_CTX_free", None, (c_void_p,)),
    ("SSL_CTX_ctrl", c_long, (c_void_p, c_int, c_long, c_void_p)),
    ("SSL_CTX_set_psk_use_session_callback", None, (c_void_p, USE_SESSION)),
    ("SSL_CTX_set_psk_find_session_callback", None, (c_void_p, FIND_SESSION)),
    ("SSL_CTX_set_ciphersuites", c_int, (c_void_p, c_char_p)),
    ("SSL_new", c_void_p, (c_void_p,)),
    ("SSL_free", None, (c_void_p,)),
    ("SSL_set_fd", c_int, (c_void_p, c_int)),
    ("SSL_connect", c_int, (c_void_p,)),
    ("SSL_accept", c_int, (c_void_p,)),
    ("SSL_write", c_int, (c_void_p, c_char_p, c_int)),
    ("SSL_session_reused", c_int, (c_void_p,)),
    ("SSL_CIPHER_find", c_void_p, (c_void_p, c_char_p)),
    ("SSL_SESSION_new", c_void_p, ()),
    ("SSL_SESSION_set1_master_key", c_int, (c_void_p, c_char_p, c_size_t)),
    ("SSL_SESSION_set_cipher", c_int, (c_void_p, c_void_p)),
    ("SSL_SESSION_set_protocol_version", c_int, (c_void_p, c_int)),
):
    _function = getattr(SSL, _name)
    _function.restype, _function.argtypes = _result, _arguments


def derive(secret, label):
    """HKDF-SHA256 (RFC 5869), one block."""
    start = hmac.new(b"poseidon-1", secret, hashlib.sha256).digest()
    return hmac.new(start, label + b"\1", hashlib.sha256).digest()


def connect(port, host="127.0.0.1"):
    return socket.create_connection((host, port), timeout=10)


def ends(peer):
    """Both ends of a connection, the connecting one first."""
    return " ".join(f"tcp://{host}:{port}"
                    for host, port in (peer.getsockname(), peer.getpeername())).encode()


def bound(peer, names):
    """Where plain bytes follow, a label names the connection, too."""
    if b" plain " not in names or b" tcp://" in names:
        return names
    return names + b" " + ends(peer)


def make_pass(secret, label):
    """What ends a label: a number that is used once, and a code over all before it."""
    number = b"%016x" % random.SystemRandom().randrange(1, 1 << 64)
    code = hmac.new(derive(secret, b"psd1 pass"), label + b" " + number, hashlib.sha256)
    return number + code.hexdigest()[:32].encode()


def make_session(ssl, secret, label):
    session = SSL.SSL_SESSION_new()
    SSL.SSL_SESSION_set1_master_key(session, derive(secret, label), 32)
    SSL.SSL_SESSION_set_cipher(session, SSL.SSL_CIPHER_find(ssl, b"\x13\x01"))
    SSL.SSL_SESSION_set_protocol_version(session, TLS1_3)
    return session


def handshake(peer, secret, names, key_names=None, version=TLS1_3, then=b""):
    """Tries to prove `names` ("psd1 MODE FROM TO") with a key for key_names (by default the same);
    secret None: offers no key at all. Says `then` when the other side was satisfied, and returns
    whether it was."""
    identity, key_label = bound(peer, names), bound(peer, key_names or names)
    ticket = b" " + make_pass(secret or bytes(32), identity)
    identity, key_label = identity + ticket, key_label + ticket
    keep = ctypes.create_string_buffer(identity, len(identity))

    def use_session(ssl, _md, id_p, id_bytes_p, session_p):
        session_p[0] = None if secret is None else make_session(ssl, secret, key_label)
        id_p[0] = ctypes.addressof(keep)
        id_bytes_p[0] = len(identity)
        return 1

    callback = USE_SESSION(use_session)
    context = SSL.SSL_CTX_new(SSL.TLS_client_method())
    SSL.SSL_CTX_ctrl(context, SET_MAX_PROTO_VERSION, version, None)
    SSL.SSL_CTX_set_psk_use_session_callback(context, callback)
    ssl = SSL.SSL_new(context)
    peer.setblocking(True)
    SSL.SSL_set_fd(ssl, peer.fileno())
    satisfied = SSL.SSL_connect(ssl) == 1 and SSL.SSL_session_reused(ssl) == 1
    if satisfied and then and b" plain " not in names:
        SSL.SSL_write(ssl, then, len(then))
    SSL.SSL_free(ssl)
    SSL.SSL_CTX_free(context)
    peer.settimeout(10)
    if satisfied and then and b" plain " in names:
        peer.sendall(then)
    return satisfied


def accept(peer, secret):
    """The other side of a handshake: satisfied with whoever has the secret, under any name."""
    def find_session(ssl, identity, bytes_, session_p):
        session_p[0] = make_session(ssl, secret, bytes(identity[:bytes_]))
        return 1

    callback = FIND_SESSION(find_session)
    context = SSL.SSL_CTX_new(SSL.TLS_server_method())
    SSL.SSL_CTX_set_ciphersuites(context, b"TLS_AES_128_GCM_SHA256")
    SSL.SSL_CTX_set_psk_find_session_callback(context, callback)
    ssl = SSL.SSL_new(context)
    SSL.SSL_set_fd(ssl, peer.fileno())
    satisfied = SSL.SSL_accept(ssl) == 1
    SSL.SSL_free(ssl)
    SSL.SSL_CTX_free(context)
    return satisfied


def record(secret, names, then):
    """All that a member says in a connection that went well, as somebody on the way has it: its
    greeting, and the rest."""
    member, near = socket.socketpair()
    far, listener = socket.socketpair()
    said = bytearray()

    def pass_on(source, sink, keep):
        while data := source.recv(65536):
            keep += data
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)

    threads = [threading.Thread(target=target, args=arguments, daemon=True) for target, arguments in
               ((pass_on, (near, far, said)), (pass_on, (far, near, bytearray())),
                (accept, (listener, secret)))]
    for thread in threads:
        thread.start()
    assert handshake(member, secret, names, then=then)
    member.shutdown(socket.SHUT_WR)
    threads[0].join()
    listener.shutdown(socket.SHUT_WR)
    for thread in threads:
        thread.join()
    for end in (member, near, far, listener):
        end.close()
    return split_greeting(bytes(said))


def records(said):
    """The whole TLS records of a recording."""
    found = []
    while len(said) >= 5 and len(said) >= (size := 5 + int.from_bytes(said[3:5], "big")):
        found.append(said[:size])
        said = said[size:]
    return found


def split_greeting(said):
    """The first record of a recording, and what follows it."""
    first = records(said)[0]
    return first, said[len(first):]


def greeting(secret, names):
    """The first words of a handshake, as somebody who recorded them has them."""
    member, recorder = socket.socketpair()
    talk = threading.Thread(target=handshake, args=(member, secret, names))
    talk.start()
    said = recorder.recv(65536)
    recorder.close()
    talk.join()
    member.close()
    return said


def wrong_greeting():
    """... of somebody with another secret."""
    return greeting(bytes(32), b"psd1 tls worker:0 master")


def answer(peer):
    """All that the daemon says until it closes the connection."""
    said = b""
    while True:
        try:
            piece = peer.recv(65536)
        except ConnectionResetError:
            return said
        if not piece:
            return said
        said += piece


class Wiretap:
    """Stands between a member and a listener, passes everything on and remembers what the member
    said, one recording per connection. `change` may alter what goes to the listener: it is called
    with the number of the connection, the offset and the bytes."""

    def __init__(self, port, host="127.0.0.1", listens=0):
        self.target = (host, port)
        self.recordings = []
        self.change = lambda connection, offset, data: data
        self.listener = socket.create_server(("127.0.0.1", listens))
        self.port = self.listener.getsockname()[1]
        self.sockets = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                member, _ = self.listener.accept()
                try:
                    other = socket.create_connection(self.target)
                except OSError:
                    member.close()
                    continue
                self.join(member, other)

    def join(self, member, other):
        """Passes on what either says, from now on."""
        number = len(self.recordings)
        self.recordings.append(bytearray())
        self.sockets += [member, other]
        for source, sink, tap in ((member, other, number), (other, member, None)):
            threading.Thread(target=self.pump, args=(source, sink, tap), daemon=True).start()

    def pump(self, source, sink, number):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if number is not None:
                    offset = len(self.recordings[number])
                    self.recordings[number] += data
                    data = self.change(number, offset, data)
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listener.close()
        for end in self.sockets:
            end.close()
