# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0

# A release needs the digest too, after "@" (hack/release.sh checks it).
ARG GO_IMAGE=golang:1.26

# Cross-compiled on the builder's platform: the binary is static, so no
# emulation is needed.
FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS source
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod \
    go mod download
# Includes .git, from which Go takes the version for the binary.
COPY . .

FROM source AS build-lanyard
ARG TARGETOS
ARG TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod \
    --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags="-s -w" -o /lanyard ./cmd/lanyard

# The command line, for deploy/checks: --target lanyard.
FROM scratch AS lanyard
LABEL org.opencontainers.image.title="lanyard" \
      org.opencontainers.image.description="Command line of Lanyard, which injects short-lived cloud credentials into pods" \
      org.opencontainers.image.source="https://github.com/lanyard-dev/lanyard" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build-lanyard /lanyard /lanyard
# The CAs of public web servers: lanyard reads issuers like a cloud.
COPY --from=build-lanyard /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
USER 65532:65532
ENTRYPOINT ["/lanyard"]

FROM source AS build-webhook
ARG TARGETOS
ARG TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod \
    --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags="-s -w" -o /lanyard-webhook ./cmd/webhook

# The last stage is the default.
FROM scratch AS lanyard-webhook
LABEL org.opencontainers.image.title="lanyard-webhook" \
      org.opencontainers.image.description="Kubernetes admission webhook that injects short-lived cloud credentials into pods" \
      org.opencontainers.image.source="https://github.com/lanyard-dev/lanyard" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build-webhook /lanyard-webhook /lanyard-webhook
# The CAs of public web servers: lanyard-webhook verify presents tokens to clouds.
COPY --from=build-webhook /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
# A numeric ID, so that runAsNonRoot can be checked without /etc/passwd.
USER 65532:65532
# Webhook, metrics, probes.
EXPOSE 9443 8080 8081
ENTRYPOINT ["/lanyard-webhook"]
