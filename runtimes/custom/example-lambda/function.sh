# The handler `function.handler`: gets the event as its argument, writes its result to standard output.
handler() {
  echo "got $1" >&2
  echo "{\"echo\": $1}"
}
