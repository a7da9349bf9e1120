#!/bin/sh
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Creates a CA for the callers of the webhook, and the client certificate of the API
# servers, in the current directory. Keep callers-ca.key away from the cluster.
set -eu

openssl ecparam -name prime256v1 -genkey -noout -out callers-ca.key
openssl req -x509 -new -key callers-ca.key -sha256 -days 3650 -subj "/CN=lanyard-callers" -out callers-ca.crt
openssl ecparam -name prime256v1 -genkey -noout -out apiserver.key
openssl req -new -key apiserver.key -subj "/CN=kube-apiserver" -out apiserver.csr
printf 'extendedKeyUsage=clientAuth\nkeyUsage=digitalSignature\n' > extensions.cnf
openssl x509 -req -in apiserver.csr -CA callers-ca.crt -CAkey callers-ca.key -CAcreateserial \
  -sha256 -days 365 -extfile extensions.cnf -out apiserver.crt
openssl verify -CAfile callers-ca.crt -purpose sslclient apiserver.crt
