#!/bin/sh
# What `npm start` runs: set-up, then the daemon in its place, both with the same flags (npm appends them once, at the
# end). `exec` leaves no shell between npm and the daemon, so the signals that npm forwards reach it. The path of Node
# is written out because a shell may remember the older `node` with which set-up began. The flag halves what V8 takes for
# young objects by default: the daemon's pauses and its memory under load are smaller, and its rate is the same.
node src/setup/index.js start "$@" && exec node_modules/.bin/node --max-semi-space-size=8 src/main.ts "$@"
