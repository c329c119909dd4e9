#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two hosts as network namespaces, joined by a veth pair: one rank on each must end with the same
# parameters, bit for bit, as two ranks on one host.
# Usage: two_hosts.sh PACELINE PROGRAM [ARGUMENT...]   The program prints each rank's hash, 16 hexadecimal digits.
set -euo pipefail
if [[ $EUID -ne 0 ]] || ! command -v ip >/dev/null; then
  echo "skipped: making network namespaces needs root and the package iproute2"
  exit 77
fi
paceline=$1
shift
here=paceline-$$-a
there=paceline-$$-b
work=$(mktemp -d)
cleanup() {
  ip netns pids "$here" 2>/dev/null | xargs -r kill -9 || true
  ip netns pids "$there" 2>/dev/null | xargs -r kill -9 || true
  ip netns del "$here" 2>/dev/null || true
  ip netns del "$there" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
if ! ip netns add "$here" 2>"$work/error"; then
  echo "skipped: no network namespaces on this machine: $(cat "$work/error")"
  exit 77
fi
ip netns add "$there"
ip link add veth0 netns "$here" type veth peer name veth0 netns "$there"
for host in "$here:10.77.0.1" "$there:10.77.0.2"; do
  ip -n "${host%%:*}" address add "${host##*:}/24" dev veth0
  ip -n "${host%%:*}" link set veth0 up
  ip -n "${host%%:*}" link set lo up
done
(umask 077 && head -c 32 /dev/urandom >"$work/secret")

export OMP_NUM_THREADS=1
on_host() {  # on_host NAMESPACE NODE_RANK PROGRAM...
  local host=$1 node=$2
  shift 2
  ip netns exec "$host" "$paceline" run -n 1 --nnodes 2 --node-rank "$node" --master-addr 10.77.0.1 \
    --master-port 29500 --secret-file "$work/secret" -- "$@"
}
on_host "$there" 1 "$@" >"$work/there" 2>&1 &
if ! on_host "$here" 0 "$@" >"$work/here" 2>&1 || ! wait $!; then
  cat "$work/here" "$work/there"
  exit 1
fi
"$paceline" run -n 2 -- "$@" >"$work/one_host" 2>&1 || { cat "$work/one_host"; exit 1; }

hashes() { grep -ohwE '[0-9a-f]{16}' "$@" | sort -u; }
hashes "$work/here" "$work/there" >"$work/two"
hashes "$work/one_host" >"$work/one"
echo "two hosts: $(cat "$work/two")"
echo "one host:  $(cat "$work/one")"
[[ -s "$work/one" ]] && cmp "$work/one" "$work/two"
