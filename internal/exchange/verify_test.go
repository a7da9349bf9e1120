// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package exchange_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lanyard-dev/lanyard/internal/exchange"
)

const (
	granted = `<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><AssumedRoleUser><Arn>arn:aws:sts::111122223333:assumed-role/cart/s</Arn></AssumedRoleUser>` +
		`<Credentials><SecretAccessKey>HIDDEN</SecretAccessKey><Expiration>2030-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`
	refused     = `<ErrorResponse><Error><Code>AccessDenied</Code><Message>Not authorized to perform sts:AssumeRoleWithWebIdentity</Message></Error></ErrorResponse>`
	azureDenial = `{"error":"invalid_client","error_codes":[700213],"error_description":"AADSTS700213: No matching federated identity record found for presented assertion subject. Trace ID: 1"}`
	google      = `{"access_token":"HIDDEN","expires_in":60}`
	noImp       = `{"error":{"code":403,"status":"PERMISSION_DENIED","message":"Permission 'iam.serviceAccounts.getAccessToken' denied"}}`

	credentials = `{"audience":"//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/pool/providers/prov","token_url":"https://sts.googleapis.com/v1/token",` +
		`"credential_source":{"file":"/gcp/token"},"service_account_impersonation_url":"https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/a@b.iam.gserviceaccount.com:generateAccessToken"}`
	profiles = "[default]\nrole_arn = x\n[profile audit]\nrole_arn = arn:aws:iam::111122223333:role/audit\n[profile chained]\nrole_arn = arn:aws:iam::111122223333:role/far\nsource_profile = audit\n"
)

// podToken is the token of the pod.
var podToken = jwt(`{"alg":"RS256"}`) + "." + jwt(`{"iss":"https://issuer.example","sub":"system:serviceaccount:shop:cart","aud":["audience"]}`) + ".c2lnbmF0dXJl"

func jwt(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// The variables of pods.
var (
	onAWS   = map[string]string{"AWS_ROLE_ARN": "arn:aws:iam::111122223333:role/cart", "AWS_REGION": "eu-central-1", "AWS_WEB_IDENTITY_TOKEN_FILE": "/aws/token"}
	onAzure = map[string]string{
		"AZURE_CLIENT_ID": "client", "AZURE_TENANT_ID": "tenant", "AZURE_AUTHORITY_HOST": "https://login.microsoftonline.com/", "AZURE_FEDERATED_TOKEN_FILE": "/azure/token",
	}
	onGoogle = map[string]string{"GOOGLE_APPLICATION_CREDENTIALS": "/gcp/credentials.json"}
)

// run runs a Verifier with a fake clock, whose requests the handler serves. It returns the lines of
// the log, how long it took, and the error.
func run(t *testing.T, variables map[string]string, files map[string]string, transport roundTripper) (log string, took time.Duration, err error) {
	t.Helper()
	client, err := exchange.NewClient("")
	if err != nil {
		t.Fatal(err)
	}
	client.Transport, client.Timeout = transport, exchange.AttemptTimeout
	v := &exchange.Verifier{
		Getenv: func(name string) string { return variables[name] },
		ReadFile: func(name string, limit int64) ([]byte, error) {
			if text, found := files[name]; found {
				return []byte(text[:min(len(text), int(limit))]), nil
			}
			return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
		},
		Client: client, Timeout: exchange.VerifyTimeout, Log: func(line string) { log += line + "\n" },
	}
	start := time.Now()
	err = v.Run(t.Context())
	return log, time.Since(start), err
}

// responding responds to all requests.
func responding(status int, body string) roundTripper {
	return func(*http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
		return w.Result(), nil
	}
}

// inTurn uses one after the other, and then always the last.
func inTurn(all ...roundTripper) roundTripper {
	calls := 0
	return func(r *http.Request) (*http.Response, error) {
		next := all[min(calls, len(all)-1)]
		calls++
		return next(r)
	}
}

func failing(err error) roundTripper {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

func silent(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestRun(t *testing.T) {
	t.Parallel()
	tokens := map[string]string{"/aws/token": podToken, "/azure/token": podToken, "/gcp/token": podToken, "/gcp/credentials.json": credentials, "/aws/config": profiles}
	denied := responding(403, refused)
	for sentence, tt := range map[string]struct {
		variables, files map[string]string
		clouds           roundTripper
		took             time.Duration
		want             []string // in the error; nil for none
		log              []string
	}{
		"no cloud":         {map[string]string{"AZURE_FEDERATED_TOKEN_FILE": "/azure/token", "AWS_WEB_IDENTITY_TOKEN_FILE": "/aws/token"}, tokens, failing(errors.New("called")), 0, nil, nil},
		"accepted at once": {onAWS, tokens, responding(200, granted), 0, nil, []string{"AWS accepts the token, as arn:aws:sts::111122223333:assumed-role/cart/s"}},
		"accepted after three refusals": {
			onAWS, tokens, inTurn(denied, denied, denied, responding(200, granted)), 7 * time.Second, nil,
			[]string{"AWS denies the token of shop/cart: AccessDenied", "AWS accepts the token"},
		},
		"an outage, and then accepted": {onAWS, tokens, inTurn(failing(errors.New("refused")), responding(200, granted)), time.Second, nil, []string{"cannot reach AWS: refused"}},
		"refused until the end": {onAWS, tokens, denied, exchange.VerifyTimeout, []string{
			"AWS denies the token of shop/cart: AccessDenied: Not authorized to perform sts:AssumeRoleWithWebIdentity\n",
			"Cause: the role does not exist, or its trust policy names another issuer, subject or audience.\n",
			"Repair: let the trust policy of arn:aws:iam::111122223333:role/cart name the issuer https://issuer.example, the subject system:serviceaccount:shop:cart and the audience audience.\n",
			"Commands: lanyard trust aws cart --namespace shop",
		}, nil},
		"Azure refuses": {onAzure, tokens, responding(401, azureDenial), exchange.VerifyTimeout, []string{
			"Azure denies the token of shop/cart: AADSTS700213: No matching",
			"Repair: give the client client a federated credential with the issuer https://issuer.example, the subject system:serviceaccount:shop:cart and the audience audience.",
		}, nil},
		"Google does not let it impersonate": {onGoogle, tokens, func(r *http.Request) (*http.Response, error) {
			if r.URL.Host == "sts.googleapis.com" {
				return responding(200, google)(r)
			}
			return responding(403, noImp)(r)
		}, exchange.VerifyTimeout, []string{
			"Repair: give principal://iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/pool/subject/system:serviceaccount:shop:cart the role roles/iam.workloadIdentityUser on a@b.iam.gserviceaccount.com.",
		}, nil},
		"no network": {onAWS, tokens, failing(errors.New("dial tcp: i/o timeout")), exchange.VerifyTimeout, []string{
			"cannot reach AWS: dial tcp: i/o timeout\nRepair: allow the pod to reach sts.eu-central-1.amazonaws.com in NetworkPolicies, firewalls, proxies and DNS.",
		}, nil},
		"a cloud that never responds": {onAWS, tokens, silent, exchange.VerifyTimeout, []string{"cannot reach AWS: "}, nil},
		"the answer before the end counts, and not the end": {onAWS, tokens, inTurn(
			denied, denied, denied, denied, denied, denied, denied, denied, denied, denied, denied, denied, denied, denied, silent), exchange.VerifyTimeout, []string{"AWS denies the token"}, nil},
		"a proxy that responds": {onAWS, tokens, responding(200, "<html>"+podToken+"</html>"), exchange.VerifyTimeout, []string{"AWS: AssumeRoleWithWebIdentity at https://sts.eu-central-1.amazonaws.com/: the response with status 200 is not of this API"}, nil},
		"no token":              {onAWS, nil, responding(200, granted), exchange.VerifyTimeout, []string{"AWS: open /aws/token: file does not exist\nRepair: delete the pod"}, nil},
		"a token that is none":  {onAWS, map[string]string{"/aws/token": "HIDDEN"}, responding(200, granted), exchange.VerifyTimeout, []string{"AWS: token: got 1 parts"}, nil},
		"one cloud of two refuses": {merged(onAWS, onAzure), tokens, func(r *http.Request) (*http.Response, error) {
			if strings.HasPrefix(r.URL.Host, "sts") {
				return responding(200, granted)(r)
			}
			return responding(401, azureDenial)(r)
		}, exchange.VerifyTimeout, []string{"Azure denies"}, []string{"AWS accepts"}},
		"a profile that is refused": {merged(onAWS, map[string]string{"AWS_CONFIG_FILE": "/aws/config"}), tokens, func(r *http.Request) (*http.Response, error) {
			body, _ := io.ReadAll(r.Body)
			if strings.Contains(string(body), "role%2Fcart") {
				return responding(200, granted)(r)
			}
			return denied(r)
		}, exchange.VerifyTimeout, []string{"AWS, profile audit denies the token", "let the trust policy of arn:aws:iam::111122223333:role/audit name"}, []string{"AWS accepts"}},
		"a text that is too long, with the token": {onAzure, tokens, responding(401, `{"error":"x","error_codes":[700213],"error_description":"bad `+podToken+` \u001b[2J`+strings.Repeat("long ", 5000)+`"}`), exchange.VerifyTimeout, []string{"bad [token] \\x1b[2Jlong"}, nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				log, took, err := run(t, tt.variables, tt.files, tt.clouds)
				if took != tt.took || (err == nil) != (tt.want == nil) {
					t.Errorf("got error %v after %v, want %q after %v", err, took, tt.want, tt.took)
				}
				for _, want := range tt.want {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("got message:\n%v\nwant:\n%s", err, want)
					}
				}
				for _, want := range tt.log {
					if !strings.Contains(log, want) {
						t.Errorf("got log:\n%s\nwant:\n%s", log, want)
					}
				}
				if strings.Count(log, "AWS accepts") > 1 {
					t.Errorf("an accepted token was presented again:\n%s", log)
				}
				text := log + fmt.Sprint(err)
				if strings.Contains(text, "chained") {
					t.Errorf("the profile without a token was presented:\n%s", text)
				}
				if strings.Contains(text, podToken) || strings.Contains(text, "HIDDEN") || strings.Contains(text, "\x1b") {
					t.Errorf("a secret or a control character is in:\n%s", text)
				}
				if err != nil && len(err.Error()) > exchange.MaxMessage {
					t.Errorf("got a message of %d bytes", len(err.Error()))
				}
			})
		})
	}
}

func merged(all ...map[string]string) map[string]string {
	merged := map[string]string{}
	for _, one := range all {
		maps.Copy(merged, one)
	}
	return merged
}

// The text for many profiles is longer than a kubelet keeps.
func TestTheMessageIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		config := "[default]\nrole_arn = x\n"
		for i := range 16 {
			config += fmt.Sprintf("[profile p%d]\nrole_arn = arn:aws:iam::111122223333:role/p%[1]d\n", i)
		}
		_, _, err := run(t, merged(onAWS, map[string]string{"AWS_CONFIG_FILE": "/aws/config"}), map[string]string{"/aws/token": podToken, "/aws/config": config}, responding(403, refused))
		if err == nil || len(err.Error()) != exchange.MaxMessage || !strings.HasSuffix(err.Error(), "...") {
			t.Errorf("got %v", err)
		}
	})
}

// The check of a deleted pod ends at once, with the results so far.
func TestTheEndOfThePod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		client := &http.Client{Transport: responding(403, refused)}
		v := &exchange.Verifier{
			Getenv: func(name string) string { return onAWS[name] }, ReadFile: func(string, int64) ([]byte, error) { return []byte(podToken), nil },
			Client: client, Timeout: exchange.VerifyTimeout, Log: func(string) { cancel() },
		}
		start := time.Now()
		if err := v.Run(ctx); err == nil || !strings.Contains(err.Error(), "AWS denies") || time.Since(start) != 0 {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
	})
}

// A name without a value would leave a gap in the step.
func TestEveryRepairHasAStep(t *testing.T) {
	t.Parallel()
	all, err := exchange.Causes()
	if err != nil {
		t.Fatal(err)
	}
	known := strings.NewReplacer("{issuer}", "", "{subject}", "", "{audience}", "", "{identity}", "", "{provider}", "", "{principal}", "")
	for name, causes := range all {
		for _, c := range causes {
			if (c.Repair == "") != (c.Step == "") || strings.ContainsAny(known.Replace(c.Step), "{}") || strings.HasSuffix(c.Step, ".") {
				t.Errorf("%s: %s %s: got step %q for the repair %q", name, c.Code, c.Message, c.Step, c.Repair)
			}
		}
	}
}
