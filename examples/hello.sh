#!/bin/sh
# Says in one line who this process is, by the variables that a launcher sets. Outside a launcher it is rank 0 of 1.
echo "rank ${RANK:-0} of ${WORLD_SIZE:-1}, local rank ${LOCAL_RANK:-0}, on $(uname -n)"
