# Unpacking Debian packages into a folder of their own; sourced, not run. This machine's own sources stay as they are.

# Debian's mirror as this machine is set up for it; no host is named here.
debian_mirror() {
    local mirror
    mirror="$(apt-get indextargets --format '$(SITE) $(ORIGIN) $(RELEASE)' 'Identifier: Packages' 2>/dev/null |
        awk '$2 == "Debian" && $3 !~ /security/ { print $1; exit }')"
    if [ -z "$mirror" ]; then
        mirror="$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
            grep -oE '^(deb |URIs:)[^#]*' | grep -oE '[a-z+]+://[^ ]*/debian/?( |$)' | head -n 1 | tr -d ' ')" || true
    fi
    [ -n "$mirror" ] || die "no Debian mirror in this machine's apt sources"
    echo "${mirror%/}"
}

# debian_unpack SUITE FOLDER PACKAGE…: makes FOLDER anew of the packages and all that they depend on. Nothing is configured.
debian_unpack() {
    local suite="$1" folder="$2" work="$2.apt" keyring package apt
    shift 2
    for tool in apt-get dpkg; do
        command -v "$tool" >/dev/null || die "$tool is not here: $* comes from Debian's packages"
    done
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    [ -r "$keyring" ] || apt_install - debian-archive-keyring

    say "fetching $* from Debian $suite into ${folder#"$PWD"/}"
    rm -rf "$work" "$folder"
    mkdir -p "$work"/{etc,lists/partial,archives/partial} "$folder"
    printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$(debian_mirror)" "$suite" >"$work/etc/sources.list"
    : >"$work/status"
    apt=(apt-get -q -y -o "Dir::Etc::sourcelist=$work/etc/sources.list" -o Dir::Etc::sourceparts=- -o Dir::Etc::preferencesparts=-
        -o Dir::Etc::preferences=- -o "Dir::State=$work" -o "Dir::State::lists=$work/lists" -o "Dir::State::status=$work/status"
        -o "Dir::Cache=$work" -o "Dir::Cache::archives=$work/archives" -o APT::Install-Recommends=false
        -o APT::Sandbox::User= -o Acquire::Languages=none -o Acquire::Retries=3 -o Debug::NoLocking=1)
    "${apt[@]}" update >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; die "the package list of Debian $suite could not be read"; }
    "${apt[@]}" --download-only install "$@" >>"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; die "$* could not be fetched"; }

    # Since packages no longer own /bin, /lib and /lib64, the links are ours to make.
    mkdir -p "$folder"/usr/{bin,lib,lib64,sbin}
    for name in bin lib lib64 sbin; do ln -s "usr/$name" "$folder/$name"; done
    for package in "$work"/archives/*.deb; do
        dpkg -x "$package" "$folder" || die "could not unpack $(basename "$package")"
    done
    rm -rf "$work"
}
