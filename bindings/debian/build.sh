#!/usr/bin/env bash
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds the Debian packages libvescomm0, libvescomm-dev and vescomm-tools. Installs the packages that
# the build needs.
#
#   bindings/debian/build.sh [FOLDER]             builds in build-debian, for /usr; the packages are
#                                                 written to FOLDER (build-debian/packages)
#   bindings/debian/build.sh --from BUILD FOLDER  packages what the build folder BUILD has built, for
#                                                 its own prefix
#
# DEBFULLNAME and DEBEMAIL are the maintainer. debhelper is not used: it needs a folder `debian` at the
# top of the tree, and cannot package a build that exists.
set -euo pipefail
umask 022
here=$(dirname "$(realpath "$0")")
source_root=$(realpath "$here/../..")

usage() { sed -n '5,15s/^# \{0,1\}//p' "$0"; }

build=
case "${1:-}" in
    --from)
        [ $# -eq 3 ] || { echo "usage: $0 --from BUILD FOLDER" >&2; exit 2; }
        [ -d "$2/meson-info" ] ||
            { echo "$0: $2 is no build folder of Meson; give one as --from BUILD" >&2; exit 2; }
        build=$(realpath "$2")
        output=$(realpath -m "$3")
        ;;
    --help)
        usage
        exit 0
        ;;
    -*)
        usage >&2
        exit 2
        ;;
    *) output=$(realpath -m "${1:-$source_root/build-debian/packages}") ;;
esac

cd "$source_root"
. tests/setup.sh
if [ -z "$build" ]; then
    install_packages meson ninja-build pkg-config g++ libc6-dev libucx-dev libhwloc-dev libssl-dev \
        libasio-dev libfmt-dev libxxhash-dev nlohmann-json3-dev libcli11-dev \
        dpkg-dev help2man
    build=$source_root/build-debian
    configure "$build" --prefix=/usr -Dlibdir="lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)" \
        -Drpath=false -Dtests=disabled -Dpython=disabled -Dexamples=disabled -Dperf_mpi=disabled \
        -Dperf_mpich=disabled -Dperf_gloo=disabled -Dperf_ucc=disabled
    build "$build"
fi
for tool in dpkg-shlibdeps help2man; do
    command -v "$tool" >/dev/null ||
        { echo "$tool is missing: apt-get install dpkg-dev help2man" >&2; exit 1; }
done

# about KEY OPTION: a value of the build folder.
about() { meson introspect "$build" "$1" | python3 -c "import json, sys; data = json.load(sys.stdin); print($2)"; }
option() { about --buildoptions "next(o['value'] for o in data if o['name'] == '$1')"; }
version=$(about --projectinfo "data['version']")
# A package of Debian itself, such as $version-1, is newer.
revision=$version-0upstream1
prefix=$(option prefix)
library=$(option libdir)
maintainer="${DEBFULLNAME:-The vescomm authors} <${DEBEMAIL:-packages@vescomm.invalid}>"
# The same input gives the same packages.
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}"
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
all=$work/all
DESTDIR=$all meson install -C "$build" --no-rebuild --quiet --strip

# package_of FILE: the package of a file of the installation, relative to the prefix. Programs that
# need other libraries are in none.
package_of() {
    case "$1" in
        "$library"/libvescomm*.so.*) echo libvescomm0 ;;
        include/* | "$library"/*.so | "$library"/pkgconfig/* | "$library"/cmake/*) echo libvescomm-dev ;;
        bin/train_gpt | share/vescomm/plot_loss.py) ;;
        */python3*/vescomm/*) ;;  # the Python package comes as a wheel
        libexec/vescomm/vescomm_perf_report) echo vescomm-tools ;;
        libexec/vescomm/vescomm_perf_*) ;;
        bin/* | share/vescomm/*) echo vescomm-tools ;;
        *)
            echo "$1 is in no package: add it to package_of in $0" >&2
            return 1
            ;;
    esac
}
# add PACKAGE FILE PATH: a copy of a file, with its mode, or a symbolic link.
add() {
    mkdir -p "$work/$1$(dirname "$3")"
    cp -P "$2" "$work/$1$3"
}
(cd "$all$prefix" && find . ! -type d -printf '%P\n' | sort) >"$work/installed"
while read -r file; do
    package=$(package_of "$file")
    [ -z "$package" ] || add "$package" "$all$prefix/$file" "$prefix/$file"
done <"$work/installed"

for program in vescomm-run vescomm-info vescomm-plan vescomm_perf; do
    case $program in
        vescomm-run) text="start the ranks of a vescomm job" ;;
        vescomm-info) text="describe a build of vescomm, its choices and its jobs" ;;
        vescomm-plan) text="plan the layouts of a model" ;;
        vescomm_perf) text="measure collectives" ;;
    esac
    LD_LIBRARY_PATH=$all$prefix/$library help2man --no-info --section=1 --name="$text" \
        --version-string="$version" --output="$work/$program.1" "$all$prefix/bin/$program"
    gzip -9n "$work/$program.1"
    add vescomm-tools "$work/$program.1.gz" "$prefix/share/man/man1/$program.1.gz"
done
for file in docs/examples/*; do
    add libvescomm-dev "$file" "$prefix/share/doc/libvescomm-dev/examples/$(basename "$file")"
done

# dpkg-gencontrol and dpkg-shlibdeps read the folder `debian`.
mkdir "$work/debian"
sed "s/@maintainer@/$maintainer/" "$here/control" >"$work/debian/control"
cat >"$work/debian/changelog" <<EOF
vescomm ($revision) unstable; urgency=medium

  * Built from the sources of version $version.

 -- $maintainer  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
EOF
gzip -9nc "$work/debian/changelog" >"$work/changelog.Debian.gz"
gzip -9nc CHANGELOG.md >"$work/changelog.gz"
# The planner and the engine have C++ interfaces, which may differ in every version.
mkdir -p "$work/libvescomm0/DEBIAN"
cat >"$work/libvescomm0/DEBIAN/shlibs" <<EOF
libvescomm 0 libvescomm0 (>= $version)
libvescomm-planner 0 libvescomm0 (>= $version), libvescomm0 (<< $version.1~)
libvescomm-fsdp 0 libvescomm0 (>= $version), libvescomm0 (<< $version.1~)
EOF
echo 'activate-noawait ldconfig' >"$work/libvescomm0/DEBIAN/triggers"

mkdir -p "$output"
for package in libvescomm0 libvescomm-dev vescomm-tools; do
    tree=$work/$package
    mkdir -p "$tree/DEBIAN"
    for file in copyright changelog.gz changelog.Debian.gz; do
        from=$work/$file
        [ $file = copyright ] && from=$here/copyright
        add "$package" "$from" "$prefix/share/doc/$package/$file"
    done
    find "$tree" -type d -exec chmod 755 {} +
    find "$tree" -name "*.so.*" -type f -exec chmod 644 {} +
    (cd "$tree" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum) \
        >"$tree/DEBIAN/md5sums"
    (
        cd "$work"
        mapfile -t binaries < <(find "$tree$prefix/bin" "$tree$prefix/$library" -type f \
            \( -path '*/bin/*' -o -name '*.so.*' \) 2>/dev/null)
        : >substvars
        # Warnings about the folder of the libraries mean nothing here.
        [ ${#binaries[@]} -eq 0 ] || dpkg-shlibdeps -Tsubstvars -S"$work/libvescomm0" \
            "${binaries[@]/#/-e}" 2>"$work/warnings" || { cat "$work/warnings" >&2; exit 1; }
        dpkg-gencontrol -p"$package" -P"$tree" -Tsubstvars -n"$package.deb" -f"$work/files"
    )
    find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group --build "$tree" "$output" >/dev/null
done
find "$output" -maxdepth 1 -name "*vescomm*_${revision}_*.deb" | sort
