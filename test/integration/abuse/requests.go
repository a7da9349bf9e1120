// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/rand"
)

// requestTimeout limits one request. It is the longest timeoutSeconds of a
// webhook.
const requestTimeout = 30 * time.Second

// request is one POST.
type request struct {
	path, contentType string // the default of the type is application/json
	body              []byte
}

// post sends count requests of next. Each connection carries one at a time.
func post(ctx context.Context, target *Target, tally *Tally, connections, count int, next func(i int) request) {
	client := target.client(connections)
	defer client.CloseIdleConnections()
	var sent atomic.Int64
	var senders sync.WaitGroup
	for range connections {
		senders.Go(func() {
			for ctx.Err() == nil {
				i := int(sent.Add(1)) - 1
				if i >= count {
					return
				}
				postOne(ctx, client, target, tally, next(i))
			}
		})
	}
	senders.Wait()
}

// client returns a client with at most this many connections.
func (t *Target) client(connections int) *http.Client {
	return &http.Client{Timeout: requestTimeout, Transport: &http.Transport{
		DialContext:         t.netDialer().DialContext,
		MaxConnsPerHost:     connections,
		MaxIdleConnsPerHost: connections,
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true}, // an attacker does not care who answers
	}}
}

func postOne(ctx context.Context, client *http.Client, target *Target, tally *Tally, r request) {
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+target.Reviews+r.path, bytes.NewReader(r.body))
	if err != nil {
		tally.add("malformed requests: " + err.Error())
		return
	}
	post.Header.Set("Content-Type", "application/json")
	if r.contentType != "" {
		post.Header.Set("Content-Type", r.contentType)
	}
	response, err := client.Do(post)
	if err != nil {
		if ctx.Err() == nil {
			tally.add("requests without a response")
			sleep(ctx, renewal)
		}
		return
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	tally.add(responses(response.StatusCode))
}

// reviews sends the same review of a pod count times, atOnce at a time.
func reviews(name string, atOnce, count int, body func(*Target) []byte) Load {
	return Load{name, func(ctx context.Context, target *Target, tally *Tally) {
		review := request{path: podPath, body: body(target)}
		post(ctx, target, tally, atOnce, count, func(int) request { return review })
	}}
}

// everywhere sends each of the bodies to all paths, all at once, and repeats this rounds times.
func everywhere(name string, rounds int, bodies func(*Target) [][]byte) Load {
	return Load{name, func(ctx context.Context, target *Target, tally *Tally) {
		var all []request
		for _, body := range bodies(target) {
			for _, path := range []string{podPath, mutateServiceAccountPath, validateServiceAccountPath} {
				all = append(all, request{path: path, body: body})
			}
		}
		post(ctx, target, tally, len(all), len(all)*rounds, func(i int) request { return all[i%len(all)] })
	}}
}

// ManyContainers sends count reviews of a pod with 32,000 containers, three at a
// time.
func ManyContainers(count int) Load {
	return reviews("pods of 32,000 containers", 3, count, func(t *Target) []byte { return t.podReview(32_000) })
}

// ForgedNames sends count reviews of ServiceAccounts that do not exist, with names
// of 60 KiB.
func ForgedNames(count int) Load {
	paths := []string{mutateServiceAccountPath, validateServiceAccountPath}
	return Load{"ServiceAccounts with names of 60 KiB", func(ctx context.Context, target *Target, tally *Tally) {
		post(ctx, target, tally, 8, count, func(i int) request {
			name := fmt.Sprintf("n%d-", i) + strings.Repeat("a", 60<<10)
			return request{path: paths[i/2%2], body: target.serviceAccountReview(name, `"lanyard.dev/audience":"x"`)}
		})
	}}
}

// OversizedObjects sends reviews with very many annotations, very many names in one
// annotation, and a very long apiVersion, to all paths at once, and repeats this rounds
// times.
func OversizedObjects(rounds int) Load {
	return everywhere("annotations without number, names without end", rounds, func(t *Target) [][]byte {
		return [][]byte{
			t.serviceAccountReview("a", emptyAnnotations("", 700_000)),
			t.serviceAccountReview("a", emptyAnnotations("lanyard.dev/", 300_000)),
			t.annotatedPodReview(emptyAnnotations("lanyard.dev/", 300_000)),
			t.annotatedPodReview(`"lanyard.dev/containers":"` + strings.Repeat(",", 3_000_000) + `"`),
			[]byte(`{"apiVersion":"` + strings.Repeat("A", 7_200_000) + `","kind":"x","request":{"uid":"1"}}`),
		}
	})
}

// LongTexts sends reviews with one text of 6.9 MB each: a key, and the names of a pod
// and of a ServiceAccount with a mistake, of letters, of characters that are escaped, and
// of invalid bytes. It sends them to all paths at once, and repeats this rounds times.
func LongTexts(rounds int) Load {
	return everywhere("keys and names of 6.9 MB", rounds, func(t *Target) (bodies [][]byte) {
		for _, character := range []string{"a", "\u0080", "\xff"} {
			long := strings.Repeat(character, 6_900_000/len(character))
			bodies = append(bodies, t.annotatedPodReview(`"lanyard.dev/`+long+`":""`))
			for _, named := range [][]byte{t.annotatedPodReview(`"lanyard.dev/x":""`), t.serviceAccountReview("p", `"lanyard.dev/aws-role-arn":"x"`)} {
				bodies = append(bodies, bytes.Replace(named, []byte(`"metadata":{"name":"p"`), []byte(`"metadata":{"name":"`+long+`"`), 1))
			}
		}
		return bodies
	})
}

// Mistakes sends count reviews of pods that are denied, with a message for the log.
func Mistakes(count int) Load {
	return reviews("well-formed reviews with a mistake", 16, count, func(t *Target) []byte {
		return t.annotatedPodReview(`"lanyard.dev/inject":"` + strings.Repeat("x", 16<<10) + `"`)
	})
}

// EphemeralContainers sends count reviews of a pod that gets 32,000 ephemeral
// containers and had as many others, four at a time.
func EphemeralContainers(count int) Load {
	return reviews("32,000 ephemeral containers, old and new", 4, count, func(t *Target) []byte { return t.ephemeralReview(32_000) })
}

// RandomServiceAccounts sends count reviews of pods over 16 connections, each with a
// different ServiceAccount that does not exist.
func RandomServiceAccounts(count int) Load {
	return Load{"pods of random ServiceAccounts", func(ctx context.Context, target *Target, tally *Tally) {
		random := rand.String(8)
		post(ctx, target, tally, 16, count, func(i int) request {
			unknown := Target{Namespace: "kube-system", ServiceAccount: fmt.Sprintf("r-%s-%d", random, i)}
			return request{path: podPath, body: unknown.podReview(1)}
		})
	}}
}

// BadRequests sends count requests that are not reviews, with 8,000 bytes in the
// content type, the query, the path and the operation.
func BadRequests(count int) Load {
	long := strings.Repeat("x", 8_000)
	operation := review(subject{resource: "pods", operation: long, namespace: long, name: long}, "{}", "")
	kinds := []request{
		{path: podPath, contentType: long},
		{path: podPath + "?timeout=" + long},
		{path: "/" + long},
		{path: podPath, body: operation},
	}
	return Load{"bad requests with long texts", func(ctx context.Context, target *Target, tally *Tally) {
		post(ctx, target, tally, 16, count, func(i int) request { return kinds[i%len(kinds)] })
	}}
}
