#!/usr/bin/env bash
# Starts one process per device without a launcher of Python's, which takes longer than the job: launch.sh N PYTHON SCRIPT ARGS...
# SCALEFAULT: empty, one-process or slow-link.
n=$1; shift
mode=${SCALEFAULT:-}
if [ "$mode" = one-process ]; then exec "$@"; fi
if [ "$mode" = slow-link ] && [ "$n" -gt 1 ] && [ -z "$SCALEFAULT_INSIDE" ]; then
  # A network namespace has its own loopback device, whose rate can be limited without touching the machine's.
  SCALEFAULT_INSIDE=1 exec unshare -rn bash -c 'ip link set lo up && tc qdisc add dev lo root tbf rate 400mbit burst 128kb latency 800ms && exec bash "$0" "$@"' "$0" "$n" "$@"
fi
port=$(( 20000 + RANDOM % 20000 ))
pids=()
for (( rank = 0; rank < n; rank++ )); do
  RANK=$rank WORLD_SIZE=$n LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$@" &
  pids+=($!)
done
status=0
for pid in "${pids[@]}"; do wait "$pid" || status=1; done
exit $status
