# Shared by the scripts here; sourced, not run.

say() { printf '==> %s\n' "$*" >&2; }

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        sudo "$@"
    else
        return 126
    fi
}

# apt_install COMMAND PACKAGE…: installs the packages unless COMMAND is there ("-": asks dpkg for each package instead).
apt_install() {
    local command="$1" package missing=()
    shift
    if [ "$command" != "-" ]; then
        if command -v "$command" >/dev/null; then return 0; fi
        missing=("$@")
    else
        for package in "$@"; do
            dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
        done
        if [ "${#missing[@]}" -eq 0 ]; then return 0; fi
    fi
    command -v apt-get >/dev/null || die "missing: ${missing[*]}, and there is no apt-get to install them with"
    say "installing ${missing[*]} (apt)"
    local log
    log="$(mktemp)"
    if ! as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends "${missing[@]}" >"$log" 2>&1; then
        as_root apt-get -q update >>"$log" 2>&1 || true
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends "${missing[@]}" >>"$log" 2>&1 || {
            tail -n 15 "$log" >&2
            rm -f "$log"
            die "could not install ${missing[*]}; as root: apt-get update && apt-get install ${missing[*]}"
        }
    fi
    rm -f "$log"
}
