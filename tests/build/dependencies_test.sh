#!/usr/bin/env bash
# An edit of a family's kernel compiles that family's objects again, for the host and for devices, and
# no other's: dependencies_test.sh NINJA BUILD_DIR, by what ninja knows of each object there. An object
# without dependencies stays as it is whatever is edited.
set -uo pipefail
"$1" -C "$2" -t deps | awk '
  function complain(what) { print "FAILED: " object " " what; failures++ }
  function judge(   other) {
    if (object == "") return
    objects[object ~ /\.cu\.o$/ ? "device" : "host"]++
    if (!valid || family == "") complain("has no valid dependencies")
    else if (!(family in kernel) && family != "traced")
      complain("is not compiled again when kernels/" family "/kernel.cuh changes")
    for (other in kernel)
      if (other != family && family != "traced") complain("is compiled again when kernels/" other "/kernel.cuh changes")
  }
  /^[^ ]/ {
    judge()
    object = match($1, /instances\/[a-z0-9_]+(_host\.cpp|\.cu)\.o:$/) ? substr($1, 1, length($1) - 1) : ""
    valid = /\(VALID\)/ && !/#deps 0,/
    family = ""
    split("", kernel)
  }
  /^ .*kernels\/[a-z0-9_]+\/(instances|kernel)\.cuh$/ {
    count = split($1, part, "/")
    if (part[count] == "instances.cuh") family = part[count - 1]
    else kernel[part[count - 1]]
  }
  END {
    judge()
    if (!objects["host"]) { print "FAILED: no object of a kernel is known"; failures++ }
    printf "%d objects for the host, %d for devices\n", objects["host"], objects["device"]
    exit failures > 0
  }'
