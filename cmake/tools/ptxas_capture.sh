#!/bin/sh
# Compiler launcher: runs the command, moves what "ptxas -v" says into <object>.ptxas.txt and the PTX
# of each architecture into <object>.ptx/, passes everything else on, and keeps the exit status.
object=
previous=
for argument in "$@"; do
  [ "$previous" = "-o" ] && object=$argument
  previous=$argument
done
[ -n "$object" ] || exec "$@"

messages=$object.messages.txt
rm -rf "$object.ptx"
mkdir "$object.ptx"
"$@" --keep --keep-dir "$object.ptx" 2>"$messages"
status=$?
find "$object.ptx" -type f ! -name '*.ptx' -delete
is_info='^ptxas info |^ +[0-9]+ bytes stack frame,'
grep -E "$is_info" "$messages" >"$object.ptxas.txt"
grep -vE "$is_info" "$messages" >&2
rm -f "$messages"
exit $status
