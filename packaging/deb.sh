#!/bin/sh
# Makes a Debian package of what cargo has built. Usage: deb.sh BUILT OUT, where the folder BUILT has flowgauge, libscap, libmapi (both
# .so and .a) and libflowgauge_pcap.so, and OUT is the folder that the package goes to. DEBFULLNAME and DEBEMAIL say who maintains it.
set -eu

built=$(cd "${1:?usage: deb.sh BUILT OUT}" && pwd)
mkdir -p "${2:?usage: deb.sh BUILT OUT}"
out=$(cd "$2" && pwd)
source=$(cd "$(dirname "$0")/.." && pwd)

for tool in dpkg-deb dpkg-shlibdeps dpkg-architecture strip make; do
    if ! command -v "$tool" >/dev/null 2>&1; then
        echo "deb.sh: there is no $tool" >&2
        echo "hint: apt-get install dpkg-dev binutils make" >&2
        exit 1
    fi
done

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$source/Cargo.toml" | head -n 1)-1
architecture=$(dpkg-architecture -qDEB_HOST_ARCH)
libdir=/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
maintainer="${DEBFULLNAME:-Flowgauge developers} <${DEBEMAIL:-flowgauge@example.org}>"
date=$(date -R -u -d "@${SOURCE_DATE_EPOCH:-$(stat -c %Y "$source/CHANGELOG.md")}")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
umask 022

make --no-print-directory -s -C "$source" install-files BUILT="$built" DESTDIR="$root" PREFIX=/usr LIBDIR="$libdir" >/dev/null
mkdir -p "$root/usr/share/zsh/vendor-completions"
mv "$root/usr/share/zsh/site-functions/_flowgauge" "$root/usr/share/zsh/vendor-completions/"
rmdir "$root/usr/share/zsh/site-functions"
strip --strip-unneeded --remove-section=.comment "$root/usr/bin/flowgauge" "$root"/usr/lib/flowgauge/*.so "$root$libdir"/*.so.*.*
strip --strip-debug "$root$libdir"/*.a
chmod 644 "$root"/usr/lib/flowgauge/*.so "$root$libdir"/*.so.*.*

# Pages are compressed, and those that are about several calls stay one file.
find "$root/usr/share/man" -type f -exec gzip -9n {} +
find "$root/usr/share/man" -type l | while read -r page; do
    target=$(readlink "$page")
    rm "$page"
    ln -s "$target.gz" "$page.gz"
done

install -d "$root/usr/lib/systemd/system" "$root/usr/lib/sysusers.d" "$root/etc/flowgauge"
for unit in "$source"/packaging/*.service; do
    sed 's|/usr/local/bin/|/usr/bin/|' "$unit" >"$root/usr/lib/systemd/system/$(basename "$unit")"
done
install -m 644 "$source/packaging/flowgauge.sysusers" "$root/usr/lib/sysusers.d/flowgauge.conf"
install -m 644 "$source/packaging/sensor.toml" "$source/packaging/element.toml" "$root/etc/flowgauge/"

doc=$root/usr/share/doc/flowgauge
install -d "$doc/examples/stacks" "$doc/examples/policies"
install -m 644 "$source/README.md" "$source/ARCHITECTURE.md" "$source"/docs/*.md "$doc/"
install -m 644 "$source"/stacks/*.stack "$doc/examples/stacks/"
install -m 644 "$source"/policies/* "$doc/examples/policies/"
gzip -9n <"$source/CHANGELOG.md" >"$doc/changelog.gz"
printf 'flowgauge (%s) unstable; urgency=medium\n\n  * What is new stands in changelog.gz.\n\n -- %s  %s\n' \
    "$version" "$maintainer" "$date" | gzip -9n >"$doc/changelog.Debian.gz"
{
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: flowgauge\n\n'
    printf 'Files: *\nCopyright: %s\nLicense: Apache-2.0 or Expat\n\n' "$(sed -n 's/^Copyright (c) //p' "$source/LICENSE-MIT" | head -n 1)"
    printf 'License: Apache-2.0\n On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.\n\nLicense: Expat\n'
    sed -n '/^Permission/,$p' "$source/LICENSE-MIT" | sed -e 's/^$/./' -e 's/^/ /'
} >"$doc/copyright"

install -d "$root/DEBIAN"
# What the binaries need, by the packages that have it here.
mkdir "$work/debian"
printf 'Source: flowgauge\n\nPackage: flowgauge\nArchitecture: any\n' >"$work/debian/control"
needs=$(cd "$work" && dpkg-shlibdeps -O --ignore-missing-info -l"$root$libdir" \
    "$root/usr/bin/flowgauge" "$root"/usr/lib/flowgauge/*.so "$root$libdir"/*.so.*.* 2>/dev/null |
    sed -n 's/^shlibs:Depends=//p')
cat >"$root/DEBIAN/control" <<END
Package: flowgauge
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $(du -k -s --exclude=DEBIAN "$root" | cut -f 1)
Depends: ${needs:+$needs, }systemd | systemd-standalone-sysusers
Recommends: libvectorscan5
Suggests: snmpd
Section: net
Priority: optional
Description: passive network monitoring: packets, flows, streams, transactions
 Flowgauge captures packets passively, once, and turns them into packets, flows,
 streams, transactions of application protocols and counters, on one sensor or
 on many.
 .
 The package has the command flowgauge with its units for systemd, the libraries
 libscap and libmapi with what programs in C need to use them, and the library
 that lets other programs get packets of a class together.
END
printf '/etc/flowgauge/%s\n' element.toml sensor.toml >"$root/DEBIAN/conffiles"
echo 'activate-noawait ldconfig' >"$root/DEBIAN/triggers"
# What packages of programs that use the libraries depend on.
printf '%s 1 flowgauge (>= '"$version"')\n' libmapi libscap >"$root/DEBIAN/shlibs"
for script in postinst prerm postrm; do
    install -m 755 "$source/packaging/deb.$script" "$root/DEBIAN/$script"
done
(cd "$root" && find . -path ./DEBIAN -prune -o -type f -print | sed 's|^\./||' | LC_ALL=C sort | xargs -d '\n' md5sum) \
    >"$root/DEBIAN/md5sums"

package=$out/flowgauge_${version}_$architecture.deb
dpkg-deb --root-owner-group --build "$root" "$package" >/dev/null
echo "$package"
