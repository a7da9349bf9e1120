// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The lifetimes of a default installation.
const (
	day             = 24 * time.Hour
	caLifetime      = 365 * day
	servingLifetime = day
)

// installation is an API server with the webhook configurations, and the replicas that
// use it. It runs in a bubble, so a year of it takes seconds.
type installation struct {
	*apiServer

	t        *testing.T
	replicas []*replica
}

type replica struct {
	*SelfManaged

	client *apiClient

	mu     sync.Mutex
	served []span[*x509.Certificate]
	log    strings.Builder
}

// span is a value, and the time from which it was current, until the next span begins.
type span[T any] struct {
	from  time.Time
	value T
}

// install starts replicas, and waits until all are ready.
func install(t *testing.T, replicas int) *installation {
	t.Helper()
	i := &installation{apiServer: newAPIServer(), t: t}
	i.register(mutatingConfigurations, validatingConfigurations)
	for n := range replicas {
		i.start(time.Duration(n+1) * 10 * time.Millisecond)
	}
	time.Sleep(2 * trustDelay)
	i.wantReady()
	return i
}

// register creates webhook configurations without a CA.
func (i *installation) register(resources ...schema.GroupVersionResource) {
	for _, resource := range resources {
		var webhooks []any
		for _, name := range []string{"pods.lanyard.dev", "serviceaccounts.lanyard.dev"} {
			webhooks = append(webhooks, map[string]any{"name": name, "clientConfig": map[string]any{"service": map[string]any{"name": "lanyard-webhook"}}})
		}
		configuration := &unstructured.Unstructured{Object: map[string]any{"webhooks": webhooks}}
		configuration.SetName("lanyard")
		i.set(resource, configuration)
	}
}

// start starts a replica whose requests take the latency.
func (i *installation) start(latency time.Duration) *replica {
	i.t.Helper()
	r := &replica{client: newAPIClient(i.apiServer, latency)}
	r.SelfManaged = NewSelfManaged(SelfManagedOptions{
		Client:          r.client,
		SecretNamespace: "lanyard-system", SecretName: "lanyard-webhook-ca", WebhookConfigurationName: "lanyard",
		Hosts:      []string{serverName},
		CADuration: caLifetime, CertificateDuration: servingLifetime,
		OnChange: func(time.Time) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.served = append(r.served, span[*x509.Certificate]{time.Now(), r.leaf()})
		},
		Logger: funcr.New(func(prefix, args string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			fmt.Fprintln(&r.log, prefix+args)
		}, funcr.Options{}),
	})
	r.maxDelay = day // a step in each minute of a year takes too much time
	i.replicas = append(i.replicas, r)
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- r.Start(ctx) }()
	i.t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			i.t.Errorf("stopped with %v", err)
		}
	})
	return r
}

func (r *replica) certificates() []span[*x509.Certificate] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.served
}

// logged returns the log lines of all replicas.
func (i *installation) logged() string {
	var all strings.Builder
	for _, r := range i.replicas {
		r.mu.Lock()
		all.WriteString(r.log.String())
		r.mu.Unlock()
	}
	return all.String()
}

func (i *installation) wantReady() {
	i.t.Helper()
	for n, r := range i.replicas {
		if err := r.Check(nil); err != nil {
			i.t.Errorf("replica %d is not ready at %s: %v", n, time.Now().Format(time.RFC3339), err)
		}
	}
}

// authority returns the CA of the Secret.
func (i *installation) authority() *authority {
	i.t.Helper()
	a, err := decodeAuthority(secretData(i.get(secrets)), time.Now())
	if err != nil {
		i.t.Fatal(err)
	}
	return a
}

// bundles returns the bundles that each webhook has had, by the name of the webhook.
func (i *installation) bundles() map[string][]span[[]byte] {
	events, _ := i.after(0)
	bundles := map[string][]span[[]byte]{}
	for _, event := range events {
		if event.resource == secrets {
			continue
		}
		for _, w := range webhooksOf(event.Object.(*unstructured.Unstructured)) {
			name := event.resource.Resource + " " + w.Name
			bundles[name] = append(bundles[name], span[[]byte]{event.at, w.ClientConfig.CABundle})
		}
	}
	return bundles
}

// wantTrust checks that, at every instant since a time, every API server has trusted what
// every replica served.
func (i *installation) wantTrust(since time.Time) {
	i.t.Helper()
	for _, apiServer := range []struct {
		name          string
		behind, clock time.Duration // how late its watch is, and its clock
	}{
		{"an API server", 0, 0},
		{"an API server that is late", trustDelay - 100*time.Millisecond, backdate},
	} {
		for name, bundles := range i.bundles() {
			for n, r := range i.replicas {
				for _, e := range exposures(bundles, r.certificates(), apiServer.behind, since) {
					if err := e.verify(apiServer.clock); err != nil {
						i.t.Errorf("%s, %s, does not trust replica %d from %s to %s: %v", apiServer.name, name, n, e.from, e.until, err)
					}
				}
			}
		}
	}
}

// exposure is the time in which an API server had the bundle and a replica served the leaf.
type exposure struct {
	from, until time.Time
	bundle      []byte
	leaf        *x509.Certificate
}

// exposures returns the exposures since a time. Bundles arrive late.
func exposures(bundles []span[[]byte], leaves []span[*x509.Certificate], late time.Duration, since time.Time) []exposure {
	var all []exposure
	for b, bundle := range bundles {
		for l, leaf := range leaves {
			e := exposure{latest(bundle.from.Add(late), leaf.from, since), time.Now(), bundle.value, leaf.value}
			if b+1 < len(bundles) {
				e.until = earliest(e.until, bundles[b+1].from.Add(late))
			}
			if l+1 < len(leaves) {
				e.until = earliest(e.until, leaves[l+1].from)
			}
			if e.from.Before(e.until) {
				all = append(all, e)
			}
		}
	}
	return all
}

func latest(times ...time.Time) time.Time   { return slices.MaxFunc(times, time.Time.Compare) }
func earliest(times ...time.Time) time.Time { return slices.MinFunc(times, time.Time.Compare) }

// verify verifies the leaf as an API server whose clock is slow does.
func (e *exposure) verify(late time.Duration) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(e.bundle)
	chains, err := e.leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: serverName, CurrentTime: e.from.Add(-late)})
	if err != nil {
		return err
	}
	// What is valid at two instants is valid between them.
	for _, chain := range chains {
		if !slices.ContainsFunc(chain, func(c *x509.Certificate) bool { return c.NotAfter.Before(e.until.Add(-late)) }) {
			return nil
		}
	}
	return errors.New("it expires")
}

// pass advances the time, and checks each hour that all replicas are ready.
func (i *installation) pass(d time.Duration) {
	i.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(min(time.Until(end), time.Hour))
		i.wantReady()
	}
}

func TestAYearOfRenewalsIsTrustedAtEveryInstant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := install(t, 2)
		start, first, version := time.Now(), i.authority(), i.version()
		// One replica learns late that another has renewed the CA.
		i.replicas[1].client.stall(renewAt(first.certificate).Add(10*time.Minute), secrets, mutatingConfigurations, validatingConfigurations)
		i.pass(caLifetime)
		i.wantTrust(start)
		for n, r := range i.replicas {
			served := r.certificates()
			for c := range served[1:] {
				used := served[c+1].from.Sub(served[c].from)
				if want := servingLifetime * 2 / 3; (used - want).Abs() > time.Second {
					t.Errorf("replica %d served a certificate for %s, want %s", n, used, want)
				}
			}
		}
		renewed := i.authority().certificate
		if !sameKey(first.certificate, renewed) {
			t.Error("the key of the CA has changed")
		}
		if used, want := renewed.NotAfter.Sub(first.certificate.NotAfter), caLifetime*2/3; (used - want).Abs() > time.Second {
			t.Errorf("the CA was renewed after %s, want %s", used, want)
		}
		want := map[string]int{"secrets": 1, "mutatingwebhookconfigurations": 1, "validatingwebhookconfigurations": 1}
		if diff := cmp.Diff(want, i.writes(version)); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	})
}

func TestADamagedSecretIsRepairedWithoutDistrust(t *testing.T) {
	t.Parallel()
	setData := func(key, value string) func(*unstructured.Unstructured) *unstructured.Unstructured {
		return func(secret *unstructured.Unstructured) *unstructured.Unstructured {
			_ = unstructured.SetNestedField(secret.Object, base64.StdEncoding.EncodeToString([]byte(value)), "data", key)
			return secret
		}
	}
	for name, test := range map[string]struct {
		damage  func(*unstructured.Unstructured) *unstructured.Unstructured
		said    string
		sameKey bool
	}{
		"a Secret that is deleted": {func(*unstructured.Unstructured) *unstructured.Unstructured { return nil }, "CA Secret not found", false},
		"a Secret that loses its data": {func(secret *unstructured.Unstructured) *unstructured.Unstructured {
			delete(secret.Object, "data")
			return secret
		}, "CA written", false},
		"a key that is not PEM":         {setData(privateKeyKey, "s3cr3t"), "failed to find any PEM data in key input", false},
		"a certificate that is not PEM": {setData(certificateKey, "s3cr3t"), "failed to find any PEM data in certificate input", true},
	} {
		for late, stall := range map[string]struct {
			watches []schema.GroupVersionResource
			time    time.Duration
		}{
			"": {},
			", and a replica whose watches are a day late":                        {[]schema.GroupVersionResource{secrets, mutatingConfigurations, validatingConfigurations}, servingLifetime - time.Minute},
			", and a replica whose watch of the Secret alone is ten minutes late": {[]schema.GroupVersionResource{secrets}, 10 * time.Minute},
		} {
			t.Run(name+late, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					i := install(t, 3)
					time.Sleep(10 * time.Hour)
					damaged, first := time.Now(), i.authority()
					i.replicas[2].client.stall(damaged.Add(stall.time), stall.watches...)
					i.set(secrets, test.damage(i.get(secrets)))
					i.pass(servingLifetime - time.Second)
					// The previous CA is trusted for as long as a leaf of it may be served.
					want := 2
					if test.sameKey {
						want = 1
					}
					i.wantTrusted(want)
					i.pass(time.Minute)
					i.wantTrusted(1)
					i.wantTrust(damaged)
					for n, r := range i.replicas {
						if r.leaf().CheckSignatureFrom(i.authority().certificate) != nil {
							t.Errorf("replica %d serves a certificate of the previous CA", n)
						}
					}
					if got := sameKey(first.certificate, i.authority().certificate); got != test.sameKey {
						t.Errorf("the key of the CA is the same: %t, want %t", got, test.sameKey)
					}
					if log := i.logged(); !strings.Contains(log, test.said) || strings.Contains(log, "s3cr3t") {
						t.Errorf("logged %s, want %q, and no data", log, test.said)
					}
				})
			})
		}
	}
}

// wantTrusted checks how many CA certificates each webhook trusts.
func (i *installation) wantTrusted(want int) {
	i.t.Helper()
	for name, bundles := range i.bundles() {
		if got := len(decodeBundle(bundles[len(bundles)-1].value)); got != want {
			i.t.Errorf("%s trusts %d CA certificates, want %d", name, got, want)
		}
	}
}

// A replica may use a new CA trustDelay after all webhooks trust it, even if the watch is faster
// than the response to the last write.
func TestANewCAIsUsedAfterTheTrustDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := install(t, 1)
		const answer = 3 * time.Second
		i.replicas[0].client.answerAfter(answer)
		i.replicas[0].client.forbid("patch validatingwebhookconfigurations")
		i.set(secrets, nil)
		i.pass(time.Minute)
		if served := i.replicas[0].certificates(); len(served) != 1 {
			t.Fatalf("got %d certificates, want the first one until every configuration trusts the new CA", len(served))
		}
		i.replicas[0].client.forbid()
		i.pass(time.Minute)
		bundles := i.bundles()["validatingwebhookconfigurations pods.lanyard.dev"]
		trusted := len(bundles) - 1
		for trusted > 0 && bytes.Equal(bundles[trusted-1].value, bundles[trusted].value) {
			trusted-- // a replica whose watch is behind writes the same again
		}
		served := i.replicas[0].certificates()
		if got := served[len(served)-1].from.Sub(bundles[trusted].from); len(served) != 2 || got < trustDelay || got > trustDelay+answer {
			t.Errorf("serves certificate %d after %s, want the second after %s to %s", len(served), got, trustDelay, trustDelay+answer)
		}
	})
}

func TestNothingIsWrittenAfterAnUninstall(t *testing.T) {
	t.Parallel()
	const creating, notFound = "creating it", "CA Secret and webhook configurations not found"
	configurations := []schema.GroupVersionResource{mutatingConfigurations, validatingConfigurations}
	for name, test := range map[string]struct {
		stalled   []schema.GroupVersionResource
		forbidden []string
		time      time.Duration
		said      string
	}{
		"replicas that learn of it at once":              {nil, nil, 7 * day, notFound},
		"replicas that learn of the configurations late": {configurations, nil, 7 * day, notFound},
		"replicas that lose their permissions":           {configurations, []string{"get mutatingwebhookconfigurations", "get secrets"}, 5 * time.Minute, "is forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				i := install(t, 2)
				time.Sleep(time.Hour)
				for _, r := range i.replicas {
					r.client.stall(time.Now().Add(time.Minute), test.stalled...)
					r.client.forbid(test.forbidden...)
				}
				// What helm uninstall deletes, in its order.
				i.set(validatingConfigurations, nil)
				i.set(mutatingConfigurations, nil)
				i.set(secrets, nil)
				version, created := i.version(), strings.Count(i.logged(), creating)
				i.pass(test.time)
				if diff := cmp.Diff(map[string]int{}, i.writes(version)); diff != "" {
					t.Errorf("writes (-want +got):\n%s", diff)
				}
				if log := i.logged(); strings.Count(log, creating) != created || !strings.Contains(log, test.said) {
					t.Errorf("logged %s, want %q, and that nothing is created", log, test.said)
				}
				for _, r := range i.replicas {
					r.client.forbid()
				}
				i.register(configurations...)
				time.Sleep(time.Minute)
				i.wantTrust(time.Now().Add(-time.Second))
				for _, r := range i.replicas {
					if err := trusts(t, i.authority(), r.leaf(), time.Now()); err != nil {
						t.Errorf("the CA of the new Secret does not trust a replica: %v", err)
					}
				}
			})
		})
	}
}

func TestReplicasAreReadyWithoutAWebhookConfiguration(t *testing.T) {
	t.Parallel()
	for _, resource := range []schema.GroupVersionResource{mutatingConfigurations, validatingConfigurations} {
		t.Run(resource.Resource, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				i := install(t, 2)
				i.set(resource, nil)
				i.pass(7 * day)
				i.register(resource)
				time.Sleep(trustDelay)
				i.pass(time.Hour)
				i.wantTrust(time.Now().Add(-time.Hour))
			})
		})
	}
}

func TestAnOverwrittenCABundleIsRepaired(t *testing.T) {
	t.Parallel()
	for name, bundle := range map[string][]byte{
		"removed":      nil,
		"another CA's": mustAuthority(t, noon, time.Hour).bundle(),
		"not PEM":      []byte("s3cr3t"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				i := install(t, 2)
				time.Sleep(time.Minute)
				i.setBundle(bundle)
				overwritten := time.Now()
				i.pass(time.Hour)
				i.wantTrust(overwritten.Add(time.Second).Add(trustDelay))
			})
		})
	}
}

// setBundle overwrites the bundle of the first mutating webhook.
func (i *installation) setBundle(bundle []byte) {
	configuration := i.get(mutatingConfigurations)
	webhooks := configuration.Object["webhooks"].([]any)
	webhooks[0].(map[string]any)["clientConfig"].(map[string]any)["caBundle"] = base64.StdEncoding.EncodeToString(bundle)
	i.set(mutatingConfigurations, configuration)
}

func TestAClientThatKeepsOverwritingCausesFewWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := install(t, 1)
		time.Sleep(time.Minute)
		version := i.version()
		const seconds, perSecond = 60, 20
		for range seconds * perSecond {
			i.setBundle(nil)
			time.Sleep(time.Second / perSecond)
		}
		got := i.writes(version)["mutatingwebhookconfigurations"] - seconds*perSecond
		if burst := 10; got < seconds || got > seconds+burst {
			t.Errorf("got %d writes in %d seconds, want one each second and a burst of %d", got, seconds, burst)
		}
	})
}

// test/integration/selfmanaged tests the permission to read, because an informer that may not
// list waits with a global clock, which does not work in a bubble.
func TestAReplicaThatMayNotWriteIsNotReady(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		forbidden []string
		want      string
	}{
		"to write the caBundle": {
			[]string{"patch mutatingwebhookconfigurations"},
			"webhook pods.lanyard.dev of MutatingWebhookConfiguration lanyard does not trust the serving certificate",
		},
		"to create the Secret": {[]string{"apply secrets"}, errNone.Error()},
		"to write the Secret":  {[]string{"update secrets"}, errNone.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				i := &installation{apiServer: newAPIServer(), t: t}
				i.register(mutatingConfigurations, validatingConfigurations)
				r := i.start(10 * time.Millisecond)
				r.client.forbid(test.forbidden...)
				for range 10 {
					time.Sleep(time.Minute)
					if err := r.Check(nil); err == nil || !strings.Contains(err.Error(), test.want) {
						t.Fatalf("got %v, want %q", err, test.want)
					}
				}
				r.client.forbid()
				time.Sleep(2 * retryDelay)
				i.wantReady()
			})
		})
	}
}

// A load balancer may accept a request and lose it.
func TestACertificateIsRenewedAlthoughARequestGetsNoResponse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := install(t, 1)
		i.replicas[0].client.silence("patch mutatingwebhookconfigurations")
		i.setBundle(nil)
		for range 3 * 24 {
			time.Sleep(time.Hour)
			if err := i.replicas[0].checkAt(time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		i.replicas[0].client.silence("")
		time.Sleep(stepTimeout + 2*retryDelay)
		i.wantReady()
	})
}

// A node's clock may be ahead when the program starts, and corrected later.
func TestCertificatesOfAClockThatWasAheadAreReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := NewSelfManaged(SelfManagedOptions{
			Client: newAPIClient(newAPIServer(), 0), Hosts: []string{serverName}, CADuration: caLifetime, CertificateDuration: servingLifetime,
			OnChange: func(time.Time) {}, Logger: logr.Discard(),
		})
		now := time.Now()
		ahead, err := certify(nil, now.Add(day), caLifetime, nil)
		if err != nil {
			t.Fatal(err)
		}
		data, err := ahead.encode()
		if err != nil {
			t.Fatal(err)
		}
		_, ca, err := s.wantedAuthority(data, now)
		if err != nil {
			t.Fatal(err)
		}
		if ca.certificate.NotBefore.After(now) || !sameKey(ca.certificate, ahead.certificate) {
			t.Errorf("got a CA that is valid from %s at %s, same key %t, want one of the same key that is valid", ca.certificate.NotBefore, now, sameKey(ca.certificate, ahead.certificate))
		}
		leaf, err := ahead.leaf(now.Add(day), servingLifetime, []string{serverName})
		if err != nil {
			t.Fatal(err)
		}
		s.current.Store(leaf)
		s.ensureLeaf(ca, now)
		if err := s.checkAt(now); err != nil {
			t.Error(err)
		}
	})
}
