#!/usr/bin/env bash
# Find a Java runtime that Spark can use (17 or newer); install one if there is none and the system lets us.
# Prints its JAVA_HOME on standard output, everything else on standard error.
set -euo pipefail

REQUIRED=17

say() {
    printf '%s\n' "$@" >&2
}

# The major version of a java executable: 8 for "1.8.0_412", 17 for "17.0.15", 25 for "25-ea"; nothing if it won't run.
major_version() {
    local output
    output=$("$1" -version 2>&1) || return 0
    if [[ $output =~ version\ \"(1\.)?([0-9]+) ]]; then
        echo "${BASH_REMATCH[2]}"
    fi
}

# The JAVA_HOME that a java executable reports itself, whatever links lead to it.
home_of() {
    local line
    while IFS= read -r line; do
        if [[ $line =~ java\.home\ =\ (.*) ]]; then
            echo "${BASH_REMATCH[1]}"
            return
        fi
    done < <("$1" -XshowSettings:properties -version 2>&1)
}

accept() {
    local java=$1 version home
    [ -x "$java" ] || return 1
    version=$(major_version "$java")
    [ -n "$version" ] || return 1
    if [ "$version" -lt "$REQUIRED" ]; then
        say "Java $version at $java is too old for Spark (needs $REQUIRED or newer)"
        return 1
    fi
    home=$(home_of "$java")
    [ -n "$home" ] || return 1
    say "Java $version: $home"
    echo "$home"
}

find_java() {
    local candidate
    if [ -n "${JAVA_HOME:-}" ]; then
        accept "$JAVA_HOME/bin/java" && return
    fi
    candidate=$(command -v java) && accept "$candidate" && return
    # Where package managers put it without linking it into PATH.
    for candidate in /usr/lib/jvm/*/bin/java /opt/homebrew/opt/openjdk*/bin/java /usr/local/opt/openjdk*/bin/java; do
        accept "$candidate" && return
    done
    return 1
}

# Run as root: directly, or through sudo if it asks for no password.
as_root() {
    if [ "$EUID" -eq 0 ]; then
        "$@" >&2
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        sudo -n "$@" >&2
    else
        return 1
    fi
}

# Distributions carry different releases; the first package that exists is installed.
install_java() {
    local package
    if command -v apt-get >/dev/null; then
        as_root apt-get update -qq || say "apt-get update failed; going on with the package lists at hand"
        for package in openjdk-17-jre-headless openjdk-21-jre-headless openjdk-25-jre-headless; do
            as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" && return
        done
    elif command -v dnf >/dev/null; then
        for package in java-17-openjdk-headless java-21-openjdk-headless java-latest-openjdk-headless; do
            as_root dnf install -y -q "$package" && return
        done
    elif command -v apk >/dev/null; then
        for package in openjdk17-jre-headless openjdk21-jre-headless; do
            as_root apk add -q "$package" && return
        done
    elif command -v brew >/dev/null; then
        brew install --quiet openjdk@17 >&2 && return
    fi
    return 1
}

if find_java; then
    exit 0
fi

say "No Java $REQUIRED or newer found: trying to install one with the system's package manager"
if install_java && find_java; then
    exit 0
fi

say "" \
    "error: Spark needs a Java runtime, version $REQUIRED or newer, and it could not be installed from here." \
    "Install one, then run make again:" \
    "  Debian, Ubuntu   sudo apt-get install openjdk-17-jre-headless   (newer releases: openjdk-21-jre-headless)" \
    "  Fedora, RHEL     sudo dnf install java-21-openjdk-headless" \
    "  Alpine           sudo apk add openjdk17-jre-headless" \
    "  macOS            brew install openjdk@17" \
    "  anywhere         unpack a JDK from https://adoptium.net and export JAVA_HOME=/path/to/it"
exit 1
