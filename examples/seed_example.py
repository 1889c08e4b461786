#!/usr/bin/env python3
"""GPU memory as a file, in Python: seed_example.py [MOUNT], where gshmd has its mount (./test_mount).

Truncating a file allocates; attributes tell how much, and the handle with which other processes map it.
"""
import errno
import os
import sys


def main() -> int:
    mount = sys.argv[1] if len(sys.argv) > 1 else "./test_mount"
    if not os.path.ismount(mount):
        print(f"nothing is mounted at {mount}; start gshmd first: gshmd {mount}", file=sys.stderr)
        return 1

    # Create file and allocate GPU memory
    path = os.path.join(mount, "python_buffer")
    with open(path, "w") as f:
        pass

    # Allocate 2MB
    os.truncate(path, 2 * 1024 * 1024)

    # Get allocation metadata
    size_bytes = os.getxattr(path, "user.allocation_size")
    print(f"Allocated: {size_bytes.decode()} bytes")

    # Get fabric handle (binary data)
    try:
        fabric_handle = os.getxattr(path, "user.fabric_handle")
    except OSError as error:
        if error.errno not in (errno.ENODATA, errno.EOPNOTSUPP):
            raise
        device = os.getxattr(path, "user.device").decode()
        print(f"No fabric handle: {device} has none ({error.strerror})")
        return 0
    print(f"Fabric handle size: {len(fabric_handle)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
