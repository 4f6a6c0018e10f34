#!/bin/sh
# Writes the secrets that docker-compose.yml mounts into a folder, each once: what is there already is left as it is.
# The folder is its owner's alone; the files are readable inside it, since a container's user is another one.
set -eu
folder=${1:-secrets}
umask 077
mkdir -p "$folder"
random() { head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n'; }
write() { [ -e "$folder/$1" ] || { printf '%s\n' "$2" > "$folder/$1" && chmod 0644 "$folder/$1"; }; }
for name in postgres_password gradmarket_token gradmarket_signer_key gradmarket_sender_key; do
  write "$name" "$(random)"
done
write gradmarket_database "postgresql://gradmarket:$(cat "$folder/postgres_password")@postgres/gradmarket"
if ! [ -e "$folder/tls_key" ] && ! [ -e "$folder/tls_certificate" ]; then  # for this machine and a first try; put a certificate for your own name here
  command -v openssl > /dev/null || { echo "openssl is missing: install it, or put tls_certificate and tls_key into $folder" >&2; exit 1; }
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout "$folder/tls_key" -out "$folder/tls_certificate" 2> /dev/null
  chmod 0644 "$folder/tls_key" "$folder/tls_certificate"
fi
echo "secrets are in $folder; back gradmarket_signer_key and gradmarket_sender_key up: vouchers and escrow hang on them"
