#!/bin/sh
# Starts a dispatcher and a worker on this host, and a worker on another one by ssh. Both need Weft at the same path, and the
# files of README.md: certificates, and the tokens of clients and workers.
# Usage: start.sh OWN-ADDRESS OTHER-ADDRESS
set -eu
own=$1 other=$2
weft server --host "$own" -p 9000 &
weft worker --host "$own" -p 9000 --data-host "$own" --cores 1 &
ssh "$other" weft worker --host "$own" -p 9000 --data-host "$other" --cores 1 &
wait
