#!/bin/sh
# A function: its payload is the standard input, its answer the standard output. It fails if the exit code is not 0.
name=$(sed -n 's/.*"name" *: *"\([^"]*\)".*/\1/p')
echo "greeting ${name:-world} in invocation $HEARTH_INVOCATION_ID" >&2
echo "Hello, ${name:-world}!"
