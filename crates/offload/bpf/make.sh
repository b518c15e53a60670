#!/bin/sh
# Makes the object anew that is taken where there is no clang, and the sums that a test compares.
set -eu
cd "$(dirname "$0")"
clang -O2 -g -target bpf -mcpu=v3 -Wall -Wextra -Werror "-I/usr/include/$(uname -m)-linux-gnu" \
    -fdebug-prefix-map="$PWD"= -c verdict.bpf.c -o verdict.o
llvm-strip -g verdict.o
sha256sum verdict.bpf.c verdict.o >sums
