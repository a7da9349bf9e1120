// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/lanyard-dev/lanyard/internal/exchange"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// startTimeout is how long the program waits for the API server to respond.
const startTimeout = 30 * time.Second

// apiserverAudiences returns the known audiences of the API server: the common ones, the
// issuer (the default of --api-audiences), and the audiences of the program's own token. No
// injected token may have one of them.
func apiserverAudiences(ctx context.Context, config *rest.Config, log logr.Logger) ([]string, error) {
	audiences := annotations.CommonAPIServerAudiences()
	issuer, err := issuer(ctx, config, log)
	if err != nil {
		return nil, err
	}
	if issuer != "" {
		audiences = append(audiences, issuer)
	}
	if config.BearerTokenFile != "" {
		own, err := tokenAudiences(config.BearerTokenFile)
		if err != nil {
			return nil, err
		}
		audiences = append(audiences, own...)
	}
	slices.Sort(audiences)
	return slices.Compact(audiences), nil
}

// warnOfReservedAudiences logs each default audience that is an audience of the API server,
// because ServiceAccounts that use it are denied.
func warnOfReservedAudiences(s *annotations.Settings, log logr.Logger) {
	for _, d := range s.Providers {
		audience := cmp.Or(s.Parameters[d.Key("audience")], d.DefaultAudience)
		if slices.Contains(s.ReservedAudiences, audience) {
			log.Info("A default audience is an audience of the API server; ServiceAccounts that use it are denied", "provider", d.Name, "audience", audience)
		}
	}
}

const discoveryPath = "/.well-known/openid-configuration"

// issuer reads the issuer from the OpenID Connect discovery document of the API
// server. By default every ServiceAccount may read it, by the ClusterRole
// system:service-account-issuer-discovery. If that is missing, issuer returns "".
func issuer(ctx context.Context, config *rest.Config, log logr.Logger) (string, error) {
	document, err := discoveryDocument(ctx, config, log)
	if err != nil || document == nil {
		return "", err
	}
	var configuration struct {
		Issuer string `json:"issuer"`
	}
	if err := json.Unmarshal(document, &configuration); err != nil {
		return "", fmt.Errorf("read %s%s: %w", config.Host, discoveryPath, err)
	}
	return configuration.Issuer, nil
}

// discoveryDocument waits for the API server. It returns nil if the document does
// not exist or the program may not read it.
func discoveryDocument(ctx context.Context, config *rest.Config, log logr.Logger) ([]byte, error) {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("create Kubernetes client: %w", err)
	}
	var document []byte
	err = wait.PollUntilContextTimeout(ctx, time.Second, startTimeout, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, startTimeout/3)
		defer cancel()
		body, err := client.Get().AbsPath(discoveryPath).DoRaw(ctx)
		switch {
		case err == nil:
			document = body
			return true, nil
		case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsNotFound(err):
			log.Info("Cannot read the issuer's discovery document; only the common audiences of API servers are reserved", "error", err.Error())
			return true, nil
		}
		log.Info("Waiting for the API server", "host", config.Host, "error", err.Error())
		return false, nil
	})
	if err != nil {
		return nil, fmt.Errorf("connect to the API server at %s: %w", config.Host, err)
	}
	return document, nil
}

// tokenAudiences returns the audiences of the ServiceAccount token in a file. It
// does not verify the signature: the token is the program's own.
func tokenAudiences(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the token of this program: %w", err)
	}
	claims, err := exchange.ParseToken(string(text))
	if errors.Is(err, exchange.ErrOpaque) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the token of this program %s: %w", file, err)
	}
	return claims.Audience, nil
}
