// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rounds is what the SDK programs have in common: it gets credentials
// in rounds, prints one JSON line for each, and says how the program ends.
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
	"time"
)

// Timeout bounds each attempt at a credential, the SDK's own retries included.
const Timeout = 60 * time.Second

// The exit codes of every SDK program.
const (
	OK     = 0 // every credential was had, or SIGTERM ended --every or --forever
	Failed = 1 // one was not had, or SIGTERM cut the only round short
	Usage  = 2 // wrong usage, or a file of settings that cannot be read
)

// A Source is one line of each round.
type Source struct {
	// Cloud is aws, azure or gcp.
	Cloud string
	// Target is the name of what the credential is for, where a program has
	// several for one cloud.
	Target string
	// Get asks for a credential with a new chain, so that nothing is left over
	// from the round before.
	Get func(context.Context) (Credential, error)
}

// A Credential is what an SDK handed out.
type Credential struct {
	// Secret is the session token (AWS) or the access token. It is never
	// printed: its hash is.
	Secret string
	// Expires is zero for a credential that does not expire.
	Expires time.Time
	// Method is the way it was had, where a program knows several.
	Method string
}

// Options are the flags that every SDK program has.
type Options struct {
	// Every is the pause between two rounds; 0 for a single round.
	Every time.Duration
	// Forever waits for SIGTERM after the round.
	Forever bool
}

// Bind defines the flags on the set.
func (o *Options) Bind(flags *flag.FlagSet) {
	flags.DurationVar(&o.Every, "every", 0, "repeat the round after this pause, until SIGTERM")
	flags.BoolVar(&o.Forever, "forever", false, "after one round, wait for SIGTERM")
}

// Validate tells of values that make no sense. The flags are those that Bind
// was given, after they were parsed.
func (o *Options) Validate(flags *flag.FlagSet) error {
	every := false
	flags.Visit(func(f *flag.Flag) { every = every || f.Name == "every" })
	switch {
	case every && o.Every <= 0:
		return fmt.Errorf("--every: got %s, want more than 0s", o.Every)
	case every && o.Forever:
		return errors.New("got both --every and --forever, want one of them")
	}
	return nil
}

// Run makes the rounds, prints to out and gives the exit code. The context ends
// with SIGTERM: a round that it cuts short prints nothing more. A round in which
// a source failed is the last one, and is finished.
func Run(ctx context.Context, out io.Writer, options Options, sources []Source) int {
	for {
		ok, err := round(ctx, out, sources)
		switch {
		case err != nil && ctx.Err() != nil:
			return options.cutShort()
		case err != nil:
			return Failed // standard output is gone, and with it who would read of it
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

// round tells whether every source gave a credential. An error means that it was
// not finished: the context ended, or out cannot be written to.
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
	credential, err := s.Get(ctx)
	if err == nil && credential.Secret == "" {
		return Credential{}, errors.New("got a credential without a token, want one with it")
	}
	return credential, err
}

// line is what is printed of an attempt: Error, or what comes before it.
type line struct {
	Cloud      string `json:"cloud"`
	Target     string `json:"target,omitempty"`
	Method     string `json:"method,omitempty"`
	Credential string `json:"credential,omitempty"` // SHA-256 of the secret, in hex
	Expires    string `json:"expires,omitempty"`    // RFC 3339, UTC, whole seconds
	Error      string `json:"error,omitempty"`      // as the SDK has it, whole
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
