"""A FUSE file system with one file, `program`, which is a copy of another: slow_files.py FOLDER FILE. The first read of
it says "reading" and waits for a line of input. Until killed; needs root. (include/uapi/linux/fuse.h, protocol 7.31)"""

import ctypes
import errno
import os
import struct
import sys
from pathlib import Path

FORGET, INTERRUPT, BATCH_FORGET, DESTROY = 2, 36, 42, 38
LOOKUP, GETATTR, OPEN, READ, RELEASE, FLUSH, INIT, OPENDIR, RELEASEDIR = 1, 3, 14, 15, 18, 25, 26, 27, 29
MS_NODEV, MNT_DETACH = 4, 2
libc = ctypes.CDLL(None, use_errno=True)


def attributes(node, size):
    mode, links = (0o40755, 2) if node == 1 else (0o100755, 1)
    return struct.pack("<6Q10I", node, size, (size + 511) // 512, 0, 0, 0, 0, 0, 0, mode, links, 0, 0, 0, 4096, 0)


class Server:
    def __init__(self, folder, content):
        self.content = content
        self.held = False
        self.device = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self.device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        if libc.mount(b"slow", folder.encode(), b"fuse", MS_NODEV, options):
            raise OSError(ctypes.get_errno(), "mount")

    def answer(self, code, node, body):
        """The answer's body; raises OSError."""
        size = len(self.content) if node != 1 else 0
        if code == INIT:
            return struct.pack("<4I2H2I2H8I", 7, 31, 1 << 16, 0, 12, 9, 1 << 16, 1, 16, 0, *[0] * 8)
        if code == LOOKUP and body.rstrip(b"\0") == b"program":
            return struct.pack("<4Q2I", 2, 0, 60, 60, 0, 0) + attributes(2, len(self.content))
        if code == LOOKUP:
            raise OSError(errno.ENOENT, "")
        if code == GETATTR:
            return struct.pack("<Q2I", 60, 0, 0) + attributes(node, size)
        if code in (OPEN, OPENDIR):
            return struct.pack("<Q2I", 1, 0, 0)
        if code == READ:
            self.hold()
            _, offset, length = struct.unpack_from("<2QI", body)
            return self.content[offset : offset + length]
        if code in (RELEASE, FLUSH, RELEASEDIR):
            return b""
        raise OSError(errno.ENOSYS, "")

    def hold(self):
        if not self.held:
            self.held = True
            print("reading", flush=True)
            sys.stdin.readline()

    def serve(self):
        while True:
            try:
                request = os.read(self.device, 1 << 17)
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                continue
            _, code, unique, node = struct.unpack_from("<2I2Q", request)
            if code in (FORGET, BATCH_FORGET, INTERRUPT):
                continue
            try:
                failure, body = 0, self.answer(code, node, request[40:])
            except OSError as error:
                failure, body = -error.errno, b""
            os.write(self.device, struct.pack("<IiQ", 16 + len(body), failure, unique) + body)


def main():
    folder = sys.argv[1]
    server = Server(folder, Path(sys.argv[2]).read_bytes())
    print("ready", flush=True)
    try:
        server.serve()
    finally:
        libc.umount2(folder.encode(), MNT_DETACH)


main()
