#!/bin/sh
# An authority, and certificates that it signs, in a directory; what is there already stays.
# certificates.sh DIRECTORY n0=HOST n1=HOST ... makes n0.pem and n0.key for node n0, and so on, and
# client.pem and client.key for the user admin.
set -eu
umask 077
cd "$1"
shift

key='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'

issue() { # NAME ALTERNATIVE-NAMES
    [ -f "$1.pem" ] && return
    # shellcheck disable=SC2086 - words
    openssl req -new $key -subj "/CN=$1" -addext "subjectAltName=$2" -keyout "$1.key" -out "$1.csr"
    openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 365 \
        -copy_extensions copy -out "$1.new"
    mv "$1.new" "$1.pem"
    rm "$1.csr"
}

if ! [ -f ca.pem ]; then
    # shellcheck disable=SC2086
    openssl req -x509 $key -subj /CN=dledger -days 3650 -keyout ca.key -out ca.new
    mv ca.new ca.pem
fi
for node; do
    issue "${node%%=*}" "DNS:${node#*=},URI:dledger://node/${node%%=*}"
done
issue client "URI:dledger://client/admin"
