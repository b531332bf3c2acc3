#!/bin/sh
# A function: its payload is the standard input, its answer the standard output, its exit code says how it went.
name=$(sed -n 's/.*"name" *: *"\([^"]*\)".*/\1/p')
echo "greeting ${name:-world} in invocation $HEARTH_INVOCATION_ID" >&2
echo "Hello, ${name:-world}!"
