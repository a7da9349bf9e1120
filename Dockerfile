# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0

# Compiled on the builder's own platform for whatever platform is asked for:
# the binary is static, so nothing needs to be emulated.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS
ARG TARGETARCH
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod \
    go mod download
# With .git, from which Go stamps the version into the binary.
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod \
    --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags="-s -w" -o /lanyard-webhook ./cmd/webhook

FROM scratch
LABEL org.opencontainers.image.title="lanyard-webhook" \
      org.opencontainers.image.description="Gives each Kubernetes pod the short-lived cloud identity that its ServiceAccount asks for" \
      org.opencontainers.image.source="https://github.com/lanyard-dev/lanyard" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /lanyard-webhook /lanyard-webhook
# By number, so that runAsNonRoot can be checked with no /etc/passwd to read.
USER 65532:65532
# Webhook, metrics, probes.
EXPOSE 9443 8080 8081
ENTRYPOINT ["/lanyard-webhook"]
