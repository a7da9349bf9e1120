// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// translation contains Lanyard's equivalents of a peer's annotations.
type translation struct {
	// values are keyed without Lanyard's prefix, and empty if there is no identity.
	values map[string]string
	// lifetime is the lifetime of the tokens in seconds, or "" if there is none. With strict,
	// it is the unchecked text of the annotation.
	lifetime string
	strict   bool
	// standard is the peer's default lifetime if Lanyard has the same one and needs no
	// annotation.
	standard int64
	findings []Finding
	// byHand reports whether a user wrote an identity of the provider, which takes precedence.
	byHand bool
}

const lifetimeKey = "token-expiration-seconds"

// translate translates the annotations of a ServiceAccount.
func (p *Peer) translate(found map[string]string, s *annotations.Settings) *translation {
	t := &translation{values: map[string]string{}}
	if !p.Asks(found) {
		p.half(t, found)
		return t
	}
	for i := range p.Inputs {
		in := &p.Inputs[i]
		value, has := found[in.Key]
		switch {
		case in.Place != OnServiceAccount:
		case in.Becomes == lifetimeKey:
			p.lifetime(t, in.Key, value, has)
		case in.Key == p.Prefix+"audience":
			// An empty audience is malformed: the token would be for the API server.
			if has {
				t.values[in.Becomes] = value
			} else if p.Audience != "" && s.Parameters[in.Becomes] == "" {
				t.values[in.Becomes] = p.Audience
			}
		case in.Becomes != "" && value != "":
			t.values[in.Becomes] = value
		case has && in.Ignored != "" && !(in.OnlyFalse && isOn(value)):
			t.find(in.Key, value, "%s", in.Ignored)
		}
	}
	if p.TokenPath != "" {
		t.values[p.Provider+"-token-path"] = p.TokenPath
	}
	return t
}

// isOn treats everything but "false" and "0" as true.
func isOn(value string) bool {
	on, err := strconv.ParseBool(value)
	return err != nil || on
}

// half adds findings about an identity without its second key.
func (p *Peer) half(t *translation, found map[string]string) {
	for _, key := range p.Identity {
		if found[key] == "" {
			continue
		}
		for _, other := range p.Identity {
			if found[other] == "" {
				t.find(key, found[key], "it is ignored without %s%s", other, p.Input(OnServiceAccount, key).Half)
			}
		}
	}
}

// lifetime translates the lifetime of the tokens. Peers have no upper limit: the kubelet
// replaces a token after a day in any case.
func (p *Peer) lifetime(t *translation, key, value string, has bool) {
	const most = annotations.MaxTokenExpirationSeconds
	seconds, err := strconv.ParseInt(value, 10, 64)
	switch {
	case p.Lifetime.Denies:
		t.lifetime, t.standard = value, p.Lifetime.Unset
		t.strict = value != "" && (err != nil || annotations.ValidateTokenExpirationSeconds(seconds, p.Lifetime.Least) != nil)
		return
	case !has:
		seconds = p.Lifetime.Unset
	case err != nil && p.Lifetime.IgnoresWords:
		seconds = p.Lifetime.Unset
		t.find(key, value, "it is not a number, so the lifetime of the tokens is %d seconds", seconds)
	case err != nil:
		t.lifetime, t.strict = value, true
		return
	case seconds > most:
		t.find(key, value, "the lifetime of the tokens is %d seconds", most)
	}
	t.lifetime = strconv.FormatInt(min(max(seconds, p.Lifetime.Least), most), 10)
}

func (t *translation) find(key, value, format string, values ...any) {
	text := fmt.Sprintf("got %q: %s", value[:min(len(value), maxShown)], fmt.Sprintf(format, values...))
	t.findings = append(t.findings, Finding{Key: key, Text: text})
}

// maxShown limits a value in a finding.
const maxShown = 1024

// Mapped reads the data of EKS's ConfigMap, as annotations by namespace and name. Without
// an audience, the peer used an empty one: a token for the API server.
func Mapped(data map[string]string) (map[string]map[string]string, error) {
	var entries map[string]struct {
		RoleARN, Audience string
		TokenExpiration   int64
	}
	if text := data["config"]; text == "" {
		return nil, nil
	} else if err := json.Unmarshal([]byte(text), &entries); err != nil {
		return nil, err
	}
	result := map[string]map[string]string{}
	for name, e := range entries {
		if e.RoleARN == "" || !strings.Contains(name, "/") {
			continue
		}
		result[name] = map[string]string{"eks.amazonaws.com/role-arn": e.RoleARN}
		if e.Audience != "" {
			result[name]["eks.amazonaws.com/audience"] = e.Audience
		}
		if e.TokenExpiration != 0 {
			result[name]["eks.amazonaws.com/token-expiration"] = strconv.FormatInt(e.TokenExpiration, 10)
		}
	}
	return result, nil
}
