// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rounds is shared by the SDK programs. It gets credentials in rounds,
// prints a JSON line for each, and returns the exit code.
package rounds

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"
)

// Timeout limits each attempt to get a credential, including the SDK's own
// retries.
const Timeout = 3 * time.Minute

// Exit codes of all SDK programs.
const (
	OK     = 0 // all credentials succeeded, or SIGTERM ended --every or --forever
	Failed = 1 // a credential failed, or SIGTERM interrupted the only round
	Usage  = 2 // wrong usage, or an unreadable settings file
)

// A Source is one line of each round.
type Source struct {
	// Cloud is aws, azure or gcp.
	Cloud string
	// Target is the name of the credential's use, if a program has several for
	// one cloud.
	Target string
	// Get gets a credential with a new chain, so that nothing is cached from
	// the previous round.
	Get func(context.Context) (Credential, error)
}

// A Credential is a credential from an SDK.
type Credential struct {
	// Secret is the session token (AWS) or the access token. Only its hash is
	// printed.
	Secret string
	// Expires is zero if the credential does not expire.
	Expires time.Time
	// Method is the method that succeeded, if a program knows several.
	Method string
}

// Options are the flags of all SDK programs.
type Options struct {
	// Every is the pause between two rounds, or 0 for a single round.
	Every time.Duration
	// Forever waits for SIGTERM after one round.
	Forever bool
}

// Bind defines the flags.
func (o *Options) Bind(flags *flag.FlagSet) {
	flags.DurationVar(&o.Every, "every", 0, "repeat the round after this pause, until SIGTERM")
	flags.BoolVar(&o.Forever, "forever", false, "after one round, wait for SIGTERM")
}

// Validate returns an error for invalid combinations. The flags come from
// Bind, after parsing.
func (o *Options) Validate(flags *flag.FlagSet) error {
	every := false
	flags.Visit(func(f *flag.Flag) { every = every || f.Name == "every" })
	switch {
	case every && o.Every <= 0:
		return fmt.Errorf("--every: got %s, want more than 0s", o.Every)
	case every && o.Forever:
		return errors.New("--every and --forever are mutually exclusive")
	}
	return nil
}

// Run runs the rounds, prints to out and returns the exit code. ctx ends with
// SIGTERM; an interrupted round prints nothing more. A round with a failed
// source is completed and is the last one.
func Run(ctx context.Context, out io.Writer, options Options, sources []Source) int {
	for {
		ok, err := round(ctx, out, sources)
		switch {
		case err != nil && ctx.Err() != nil:
			return options.cutShort()
		case err != nil:
			return Failed // standard output is closed, so nobody would see further lines
		case !ok:
			return Failed
		case options.Forever:
			<-ctx.Done()
			return OK
		case options.Every == 0:
			return OK
		}
		select {
		case <-ctx.Done():
			return OK
		case <-time.After(options.Every):
		}
	}
}

func (o Options) cutShort() int {
	if o.Forever || o.Every > 0 {
		return OK
	}
	return Failed
}

// round reports whether all sources succeeded. It returns an error if the round
// was not completed because ctx ended or out cannot be written.
func round(ctx context.Context, out io.Writer, sources []Source) (ok bool, err error) {
	ok = true
	for _, source := range sources {
		credential, err := source.get(ctx)
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		ok = ok && err == nil
		if err := json.NewEncoder(out).Encode(lineOf(source, credential, err)); err != nil {
			return false, err
		}
	}
	return ok, nil
}

func (s Source) get(ctx context.Context) (Credential, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	for {
		credential, err := s.Get(ctx)
		if err == nil && credential.Secret == "" {
			return Credential{}, errors.New("got a credential without a token")
		}
		if err == nil || !strings.Contains(err.Error(), noSuchHost) {
			return credential, err
		}
		select {
		case <-ctx.Done():
			return credential, err
		case <-time.After(time.Second):
		}
	}
}

// noSuchHost is part of the error for a name that was not found. The names of the clouds are in
// /etc/hosts, which the kubelet truncates and writes again whenever it starts another container
// of the pod (ensureHostsFile in pkg/kubelet/kubelet_pods.go). Not every SDK wraps the
// *net.DNSError.
const noSuchHost = "no such host"

// line is the output of one attempt: either Error or the fields between it and
// Cloud.
type line struct {
	Cloud      string `json:"cloud"`
	Target     string `json:"target,omitempty"`
	Method     string `json:"method,omitempty"`
	Credential string `json:"credential,omitempty"` // SHA-256 of the secret, in hex
	Expires    string `json:"expires,omitempty"`    // RFC 3339, UTC, whole seconds
	Error      string `json:"error,omitempty"`      // the SDK's complete error
}

func lineOf(source Source, credential Credential, err error) line {
	l := line{Cloud: source.Cloud, Target: source.Target}
	if err != nil {
		l.Error = err.Error()
		return l
	}
	hash := sha256.Sum256([]byte(credential.Secret))
	l.Credential, l.Method = hex.EncodeToString(hash[:]), credential.Method
	if !credential.Expires.IsZero() {
		l.Expires = credential.Expires.UTC().Format(time.RFC3339)
	}
	return l
}
