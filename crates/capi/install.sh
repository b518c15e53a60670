#!/bin/sh
# Installs libscap. Usage: install.sh FOLDER, where FOLDER has libscap.so and libscap.a as cargo built them.
# PREFIX (default /usr/local), LIBDIR (PREFIX/lib), INCLUDEDIR (PREFIX/include) say where the files will be used,
# DESTDIR what to put before these paths now (for packages).
set -eu

built=${1:?usage: install.sh FOLDER-WITH-LIBSCAP}
here=$(cd "$(dirname "$0")" && pwd)
prefix=${PREFIX:-/usr/local}
libdir=${LIBDIR:-$prefix/lib}
includedir=${INCLUDEDIR:-$prefix/include}
root=${DESTDIR:-}

define() {
    sed -n "s/^#define $1 \([0-9]*\)$/\1/p" "$here/include/scap.h"
}
major=$(define SCAP_VERSION_MAJOR)
version=$major.$(define SCAP_VERSION_MINOR)

for file in libscap.so libscap.a; do
    if [ ! -f "$built/$file" ]; then
        echo "install.sh: there is no $built/$file" >&2
        echo "hint: build it first: make capi" >&2
        exit 1
    fi
done

install -d "$root$libdir/pkgconfig" "$root$includedir"
install -m 644 "$here/include/scap.h" "$root$includedir/scap.h"
install -m 755 "$built/libscap.so" "$root$libdir/libscap.so.$version"
ln -sf "libscap.so.$version" "$root$libdir/libscap.so.$major"
ln -sf "libscap.so.$major" "$root$libdir/libscap.so"
install -m 644 "$built/libscap.a" "$root$libdir/libscap.a"
sed -e "s|@PREFIX@|$prefix|" -e "s|@LIBDIR@|$libdir|" -e "s|@INCLUDEDIR@|$includedir|" \
    -e "s|@VERSION@|$version|" -e "s|@PRIVATE_LIBS@|${PRIVATE_LIBS:--lpcap -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc}|" \
    "$here/scap.pc.in" >"$root$libdir/pkgconfig/scap.pc"

# Installed for this machine: the loader has to learn of it.
if [ -z "$root" ] && [ "$(id -u)" = 0 ] && command -v ldconfig >/dev/null 2>&1; then
    ldconfig || true
fi
