#!/usr/bin/env bash
# Starts one process per device without a launcher of Python's, which takes longer than the job: launch.sh N PYTHON SCRIPT ARGS...
n=$1; shift
if [ "$SCALEFAULT_ONE_PROCESS" = 1 ]; then exec "$@"; fi
port=$(( 20000 + RANDOM % 20000 ))
pids=()
for (( rank = 0; rank < n; rank++ )); do
  RANK=$rank WORLD_SIZE=$n LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$@" &
  pids+=($!)
done
status=0
for pid in "${pids[@]}"; do wait "$pid" || status=1; done
exit $status
