#!/bin/sh
# Installs libmapi. Usage: install.sh FOLDER, where FOLDER has libmapi.so and libmapi.a as cargo built them.
# PREFIX (default /usr/local), LIBDIR (PREFIX/lib), INCLUDEDIR (PREFIX/include), MANDIR (PREFIX/share/man) say where the files will
# be used, DESTDIR what to put before these paths now (for packages).
set -eu

built=${1:?usage: install.sh FOLDER-WITH-LIBMAPI}
here=$(cd "$(dirname "$0")" && pwd)
prefix=${PREFIX:-/usr/local}
libdir=${LIBDIR:-$prefix/lib}
includedir=${INCLUDEDIR:-$prefix/include}
mandir=${MANDIR:-$prefix/share/man}
root=${DESTDIR:-}
version=1.0

for file in libmapi.so libmapi.a; do
    if [ ! -f "$built/$file" ]; then
        echo "install.sh: there is no $built/$file" >&2
        echo "hint: build it first: make mapi" >&2
        exit 1
    fi
done

install -d "$root$libdir/pkgconfig" "$root$includedir/mapi" "$root$mandir/man3"
install -m 644 "$here"/include/*.h "$root$includedir"
install -m 644 "$here"/include/mapi/*.h "$root$includedir/mapi"
install -m 644 "$here"/man/*.3 "$root$mandir/man3"
# A page that is about several calls is there for each.
for page in "$here"/man/*.3; do
    for name in $(sed -n 's/^\.Nm \([a-z_]*\).*/\1/p' "$page"); do
        [ -e "$root$mandir/man3/$name.3" ] || ln -sf "$(basename "$page")" "$root$mandir/man3/$name.3"
    done
done
install -m 755 "$built/libmapi.so" "$root$libdir/libmapi.so.$version"
ln -sf "libmapi.so.$version" "$root$libdir/libmapi.so.1"
ln -sf libmapi.so.1 "$root$libdir/libmapi.so"
# Of the static one the linker takes what is used: the rest asks for libraries that it does not need.
install -m 644 "$built/libmapi.a" "$root$libdir/libmapi.a"
sed -e "s|@PREFIX@|$prefix|" -e "s|@LIBDIR@|$libdir|" -e "s|@INCLUDEDIR@|$includedir|" \
    -e "s|@VERSION@|$version|" -e "s|@PRIVATE_LIBS@|${PRIVATE_LIBS:--Wl,--gc-sections -lutil -lrt -lpthread -lm -ldl -lc}|" \
    "$here/mapi.pc.in" >"$root$libdir/pkgconfig/mapi.pc"

# Installed for this machine: the loader has to learn of it.
if [ -z "$root" ] && [ "$(id -u)" = 0 ] && command -v ldconfig >/dev/null 2>&1; then
    ldconfig || true
fi
