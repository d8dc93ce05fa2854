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

# Puts cargo on the PATH: that of the user, or else the one that scripts/setup fetched.
use_rust() {
    PATH="$HOME/.cargo/bin:$PATH"
    if [ -x .cache/rust/cargo/bin/cargo ]; then
        export CARGO_HOME="$PWD/.cache/rust/cargo" RUSTUP_HOME="$PWD/.cache/rust/rustup"
        PATH="$CARGO_HOME/bin:$PATH"
    fi
}

# rust_library TARGET: installs Rust's library for another system.
rust_library() {
    if [ ! -d "$(rustc --print target-libdir --target "$1" 2>/dev/null)" ]; then
        command -v rustup >/dev/null || die "Rust's library for $1 is missing, and there is no rustup to install it with"
        say "installing Rust's library for $1 (rustup)"
        rustup target add "$1" || die "Rust's library for $1 could not be installed"
    fi
}
