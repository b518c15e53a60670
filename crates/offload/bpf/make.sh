#!/bin/sh
# Makes the objects anew that are taken where there is no clang, and the sums that a test compares.
set -eu
cd "$(dirname "$0")"
for name in verdict mirror fanout inbound; do
    clang -O2 -g -target bpf -mcpu=v3 -Wall -Wextra -Werror "-I/usr/include/$(uname -m)-linux-gnu" \
        -fdebug-prefix-map="$PWD"= -c $name.bpf.c -o $name.o
    llvm-strip -g $name.o
done
sha256sum base.h judge.h spread.h verdict.bpf.c verdict.o mirror.bpf.c mirror.o fanout.bpf.c fanout.o inbound.bpf.c inbound.o >sums
