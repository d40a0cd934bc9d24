"""TensorFlow's side of `cargo xtask bench formats`.

list PREFIX        names and shapes on stdout; the seconds of the call alone on stderr
read PREFIX        every tensor; {"seconds", "tensors", "bytes"} without the import
rss PROGRAM ARG…   runs the program; its peak resident memory in KiB
info               versions and the time"""

import json
import os
import sys
import time


def listing(prefix):
    import tensorflow as tf

    start = time.perf_counter()
    variables = tf.train.list_variables(prefix)
    seconds = time.perf_counter() - start
    for name, shape in variables:
        print(name, shape)
    print(json.dumps({"seconds": seconds, "tensors": len(variables), "bytes": 0}), file=sys.stderr)


def read(prefix):
    import tensorflow as tf

    start = time.perf_counter()
    reader = tf.train.load_checkpoint(prefix)
    names = sorted(reader.get_variable_to_shape_map())
    size = sum(reader.get_tensor(name).nbytes for name in names)
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "tensors": len(names), "bytes": size}))


def rss(program, *arguments):
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawn(program, [program, *arguments], os.environ, file_actions=quiet)
    _, status, usage = os.wait4(pid, 0)
    if status:
        sys.exit(f"{program} ended with status {status}")
    print(usage.ru_maxrss)


def info():
    import platform

    import numpy as np
    import tensorflow as tf

    print(json.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "python": platform.python_version(),
                      "numpy": np.__version__, "tensorflow": tf.__version__}))


{"list": listing, "read": read, "rss": rss, "info": info}[sys.argv[1]](*sys.argv[2:])
