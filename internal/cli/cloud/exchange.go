// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/exchange"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate/injected"
)

// FromPod returns the Request with which an injected pod would ask a provider, without the
// token.
func FromPod(pod *injected.Pod, s *annotations.Settings, serviceAccount *metav1.ObjectMeta, name string) (*exchange.Request, error) {
	index := slices.IndexFunc(s.Providers, func(d *annotations.Provider) bool { return d.Name == name })
	if index < 0 {
		return nil, fmt.Errorf("provider %q does not exist", name)
	}
	d := s.Providers[index]
	at := slices.IndexFunc(pod.Tokens, func(t injected.Token) bool { return t.Provider == name })
	container := slices.IndexFunc(pod.Containers, func(c injected.Container) bool { return c.Kind == injected.Ordinary })
	switch {
	case !slices.Contains(pod.Providers, name):
		return nil, fmt.Errorf("annotation %s of the pod is %q and lacks %s", annotations.Injected, strings.Join(pod.Providers, ","), name)
	case at < 0:
		return nil, fmt.Errorf("the volumes of the pod have no token with the path %s", d.TokenPath)
	case container < 0:
		return nil, errors.New("the pod has no container")
	}
	r := &exchange.Request{
		Namespace: serviceAccount.Namespace, ServiceAccount: serviceAccount.Name,
		Provider: name, Audience: pod.Tokens[at].Audience, ExpirationSeconds: pod.Tokens[at].ExpirationSeconds,
		Variables: map[string]string{}, File: pod.Files[name],
	}
	for _, v := range pod.Containers[container].Variables { // all containers have the same
		switch {
		case !slices.ContainsFunc(d.Variables, func(known annotations.Variable) bool { return known.Name == v.Name }):
		case v.IsPodName():
			r.Variables[v.Name] = pod.Name
		case v.From == nil:
			r.Variables[v.Name] = strings.ReplaceAll(v.Value, "$$", "$")
		}
	}
	return r, nil
}

func clouds() []string { return slices.Sorted(maps.Keys(exchange.Clouds())) }

// NewTrust returns the configuration with which one of the clouds accepts the tokens.
func NewTrust(cloud string, token *Token) (Trust, error) {
	return map[string]func(*Token) (Trust, error){"aws": trustAWS, "azure": trustAzure, "gcp": trustGCP}[cloud](token)
}

// Do calls exchange.Do, and adds the repair to a denial whose cause is known.
func Do(ctx context.Context, client *http.Client, r *exchange.Request) (*exchange.Answer, error) {
	answer, err := exchange.Do(ctx, client, r)
	if err != nil || answer.Known == nil {
		return answer, err
	}
	answer.Repair = commands(r, "repair", answer.Known.Repair)
	if answer.Repair != "" && answer.Known.Terraform && r.Profile == "" {
		answer.Repair += "# As Terraform: lanyard trust " + r.Provider + " " + Quote(r.ServiceAccount) + " --namespace " + Quote(r.Namespace) + " --output terraform\n"
	}
	return answer, nil
}

// commands returns a part of the trust configuration that makes the cloud accept the
// token, or "" if there is none.
func commands(r *exchange.Request, format, part string) string {
	claims, err := exchange.ParseToken(r.Token)
	if err != nil {
		return ""
	}
	trust, _ := NewTrust(r.Provider, &Token{ // an error results in no text
		Issuer: claims.Issuer, ServiceAccounts: []ServiceAccount{{Namespace: r.Namespace, Name: r.ServiceAccount}}, Audience: r.Audience, Values: r.Values(),
	})
	return trust.Text(format, part)
}
