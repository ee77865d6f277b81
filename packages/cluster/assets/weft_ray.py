"""Runs processes of Weft as actors of a Ray cluster, one per bundle of a placement group.

Reads one JSON object from standard input: {"address", "processes", "cpus", "gpus", "strategy",
"restart"} and, when it has said where the bundles are, a second one: {"command", "env", "each", "files", "folder"}.
Writes one JSON object per line: what happens to the processes. Ray places and restarts the actors; an actor whose process ends, ends too. When standard input closes, everything is removed.
"""

import json
import os
import socket
import sys
import threading


def say(**event):
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


try:
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
except ImportError as error:
    say(t="failed", message=f"Python has no ray: {error}; pip install ray, or set WEFT_RAY_PYTHON to a Python that has it")
    sys.exit(1)


class Process:
    """One process of Weft on a node of the Ray cluster."""

    def __init__(self, index, command, env, files, folder):
        import ctypes
        import os
        import signal
        import subprocess

        self.index = index
        values = dict(os.environ, **env)
        # Certificates travel with the actor, into memory that ends with it however it ends. Its user alone can read them.
        opened = []
        for name, text in files.items():
            file = os.memfd_create("weft")
            os.fchmod(file, 0o600)
            with os.fdopen(os.dup(file), "w") as writer:
                writer.write(text)
            opened.append(file)
            values[name] = f"/proc/self/fd/{file}"
        values["WEFT_NODE_ADDRESS"] = ray.util.get_node_ip_address()
        actor = os.getpid()

        def end_with_actor():
            ctypes.CDLL("libc.so.6").prctl(1, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != actor:
                os._exit(1)

        words = [word.replace("{node}", values["WEFT_NODE_ADDRESS"]) for word in command]
        # The process reads its parent's end from standard input.
        self.child = subprocess.Popen(
            words,
            env=values,
            cwd=folder if os.path.isdir(folder) else None,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            preexec_fn=end_with_actor,
            pass_fds=opened,
        )
        for file in opened:
            os.close(file)

    def place(self):
        return {"address": ray.util.get_node_ip_address(), "pid": self.child.pid}

    def lines(self):
        """The next lines of output; an empty list at the end."""
        line = self.child.stdout.readline()
        return [line] if line else []

    def result(self):
        return self.child.wait()

    def stop(self):
        self.child.terminate()


def watch(index, actor, restart, done):
    """Forwards the output of a process until it has ended for good."""
    while True:
        try:
            say(t="started", process=index, **ray.get(actor.place.remote()))
            while True:
                lines = ray.get(actor.lines.remote())
                if not lines:
                    break
                say(t="output", process=index, text=lines[0])
            code = ray.get(actor.result.remote())
            say(t="ended", process=index, code=code)
            if not restart:
                break
            # Ray starts another actor in the same bundle.
            ray.kill(actor, no_restart=False)
        except ray.exceptions.RayActorError as error:
            say(t="lost", process=index, message=str(error).split("\n")[0])
            if not restart:
                break
        except Exception as error:  # the cluster itself has ended
            say(t="lost", process=index, message=str(error).split("\n")[0])
            break
    done()


def main():
    wanted = json.loads(sys.stdin.readline())
    try:
        # Ray itself tries for minutes.
        host, _, port = wanted["address"].rpartition(":")
        if "/" not in host and port.isdigit():
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(address=wanted["address"], log_to_driver=False, logging_level="ERROR")
    except Exception as error:
        say(t="failed", message=f"no Ray cluster at {wanted['address']}: {str(error).splitlines()[0]}")
        return 1
    processes, restart = wanted["processes"], wanted["restart"]
    bundle = {"CPU": wanted["cpus"]}
    if wanted["gpus"] > 0:
        bundle["GPU"] = wanted["gpus"]
    group = placement_group([bundle] * processes, strategy=wanted["strategy"])
    try:
        ray.get(group.ready(), timeout=wanted["timeout"])
    except Exception:
        remove_placement_group(group)
        say(
            t="failed",
            message=f"Ray has no room for {processes} processes of {bundle} (free: {ray.available_resources()})",
        )
        return 1
    nodes = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
    bundles = ray.util.placement_group_table(group)["bundles_to_node_id"]
    places = [nodes[bundles[index]] for index in range(processes)]
    say(t="placed", addresses=places, own=ray.util.get_node_ip_address())
    line = sys.stdin.readline()  # what depends on the addresses
    if line == "":
        remove_placement_group(group)
        return 1
    more = json.loads(line)
    remote = ray.remote(Process)
    actors = []
    left = [processes]
    over = threading.Event()
    lock = threading.Lock()

    def done():
        with lock:
            left[0] -= 1
            if left[0] == 0:
                over.set()

    for index in range(processes):
        place = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=index)
        actor = remote.options(
            scheduling_strategy=place,
            num_cpus=wanted["cpus"],
            num_gpus=wanted["gpus"],
            max_restarts=-1 if restart else 0,
            max_concurrency=4,
        ).remote(index, more["command"], {**more["env"], **more["each"][index]}, more["files"], more["folder"])
        actors.append(actor)
        threading.Thread(target=watch, args=(index, actor, restart, done), daemon=True).start()

    def follow_parent():
        sys.stdin.read()
        over.set()

    threading.Thread(target=follow_parent, daemon=True).start()
    over.wait()
    for actor in actors:
        try:
            ray.kill(actor, no_restart=True)
        except Exception:
            pass
    remove_placement_group(group)
    ray.shutdown()
    return 0


code = main()
sys.stdout.flush()
os._exit(code)
