// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/internal/provider"
	"github.com/lanyard-dev/lanyard/internal/texts"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

const (
	// VerifyTimeout is how long clouds may take to learn about a new trust: IAM is eventually consistent.
	VerifyTimeout = 2 * time.Minute
	// AttemptTimeout limits one request.
	AttemptTimeout = 10 * time.Second
	// The pause doubles after each attempt, between these two.
	minPause, maxPause = time.Second, 10 * time.Second
	// MaxMessage is the length to which a kubelet cuts a termination message.
	MaxMessage = 4096
	// maxDenial limits the text of a cloud in a message.
	maxDenial = 512
	// maxFile is larger than any token or credential file.
	maxFile = 64 << 10
)

// Verifier is the program of the init container lanyard-verify: it presents the tokens of its pod to
// the clouds, from the network of the pod, until the clouds accept them.
type Verifier struct {
	// Getenv returns the variable of a container of the pod, and ReadFile at most limit bytes of a
	// file.
	Getenv   func(name string) string
	ReadFile func(name string, limit int64) ([]byte, error)
	Client   *http.Client
	// Timeout is how long the clouds may take to accept the tokens.
	Timeout time.Duration
	// Log writes a line.
	Log func(line string)
}

// Run presents the tokens to each cloud of the pod until the cloud accepts them, or until Timeout
// has passed. The error is the message for people: the response, the cause and the repair for each
// cloud that did not accept its token. It never contains a token.
func (v *Verifier) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, v.Timeout)
	defer cancel()
	accepted, last := map[string]bool{}, ""
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		problems := strings.Join(v.attempt(ctx, accepted), "\n")
		switch {
		case problems == "":
			return nil
		case last == "" || ctx.Err() == nil && problems != last:
			last = problems // otherwise, the problem is only the end of ctx
			v.Log(last)
		}
		select {
		case <-ctx.Done():
			return errors.New(texts.Cut(last, MaxMessage-len("...")))
		case <-time.After(pause):
		}
	}
}

// attempt presents the tokens that were not accepted yet, and returns a text for each that is
// still not accepted. The kubelet may have renewed a token since the last attempt.
func (v *Verifier) attempt(ctx context.Context, accepted map[string]bool) (problems []string) {
	for _, d := range provider.Builtin() {
		cloud, exchanges := Clouds()[d.Name]
		if !exchanges {
			continue
		}
		r, err := v.request(d, &cloud)
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v\nRepair: delete the pod, so that its controller creates a new one.", cloud.Title, err))
		}
		if r == nil {
			continue
		}
		for _, one := range r.Identities() {
			name := strings.TrimSuffix(cloud.Title+", profile "+one.Profile, ", profile ")
			if one.Source != "" || accepted[name] {
				continue // credentials of another profile replace the token
			}
			answer, err := Do(ctx, v.Client, one)
			if accepted[name] = err == nil && answer.Granted; accepted[name] {
				v.Log(name + " accepts the token, as " + texts.Escape(answer.Identity))
			} else {
				problems = append(problems, problem(name, one, answer, err))
			}
		}
	}
	return problems
}

// request returns the request to a cloud, or nil if the pod has no identity there.
func (v *Verifier) request(d *annotations.Provider, cloud *Cloud) (*Request, error) {
	if !cloud.Asks(v.Getenv) {
		return nil, nil
	}
	r := &Request{Provider: d.Name, Variables: map[string]string{}}
	for i := range d.Variables {
		r.Variables[d.Variables[i].Name] = v.Getenv(d.Variables[i].Name)
	}
	if name := r.Variables[cloud.File]; name != "" {
		text, err := v.ReadFile(name, maxFile)
		if err != nil {
			return nil, err
		}
		r.File = string(text)
	}
	path := r.Variables[cloud.TokenFile]
	if cloud.TokenFile == "" {
		file, err := r.CredentialFile()
		if err != nil {
			return nil, err
		}
		path = file.Source.File
	}
	text, err := v.ReadFile(path, maxFile)
	if err != nil {
		return nil, err
	}
	r.Token = string(text)
	claims, err := ParseToken(r.Token)
	if err != nil {
		return nil, err
	}
	r.Audience = strings.Join(claims.Audience, ",")
	r.Namespace, r.ServiceAccount, _ = strings.Cut(strings.TrimPrefix(claims.Subject, "system:serviceaccount:"), ":")
	return r, nil
}

// problem describes a token that is not accepted: the response of the cloud, the cause, and the next
// step.
func problem(name string, r *Request, answer *Answer, err error) string {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		host := failed.URL
		if u, err := url.Parse(failed.URL); err == nil {
			host = u.Host
		}
		return fmt.Sprintf("cannot reach %s: %s\nRepair: allow the pod to reach %s in NetworkPolicies, firewalls, proxies and DNS.",
			name, texts.Escape(failed.Err.Error()), host)
	}
	if err != nil {
		return name + ": " + texts.Escape(err.Error())
	}
	lines := []string{fmt.Sprintf("%s denies the token of %s/%s: %s: %s", name, r.Namespace, r.ServiceAccount,
		texts.Escape(answer.Code), texts.Escape(texts.Cut(answer.Message, maxDenial)))}
	if answer.Known == nil {
		return lines[0]
	}
	lines = append(lines, "Cause: "+answer.Cause)
	if step := repair(r, answer.Known.Step); step != "" {
		lines = append(lines, "Repair: "+step+".")
	}
	if answer.Known.Terraform {
		lines = append(lines, fmt.Sprintf("Commands: lanyard trust %s %s --namespace %s", r.Provider, r.ServiceAccount, r.Namespace))
	}
	return strings.Join(lines, "\n")
}

// repair fills in the values of a cause's step.
func repair(r *Request, step string) string {
	known, subject := r.Values(), "system:serviceaccount:"+r.Namespace+":"+r.ServiceAccount
	google := known["workload-identity-provider"]
	values := annotations.Values{
		"audience": r.Audience, "subject": subject, "identity": cmp.Or(known["role-arn"], known["client-id"], known["service-account"]),
		"provider": google, "principal": Principal(google, subject),
	}
	if claims, err := ParseToken(r.Token); err == nil {
		values["issuer"] = claims.Issuer
	}
	text, _ := values.Expand(step)
	return text
}

// Clouds returns the titles of the clouds that the pod has an identity for.
func (v *Verifier) Clouds() []string {
	var titles []string
	for _, cloud := range Clouds() {
		if cloud.Asks(v.Getenv) {
			titles = append(titles, cloud.Title)
		}
	}
	slices.Sort(titles)
	return titles
}
