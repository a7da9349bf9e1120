// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command reader reads the tokens that the variables of its container point to, as an SDK
// does. Once a second, it prints the credentials of the container: "none", or each
// cloud with the audience of its token. It prints no token.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/lanyard-dev/lanyard/test/demo/claims"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	for ctx.Err() == nil {
		fmt.Println(credentials())
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// credentials describes the credentials of this container.
func credentials() string {
	var found []string
	for _, cloud := range []struct{ name, variable string }{
		{"aws", "AWS_WEB_IDENTITY_TOKEN_FILE"}, {"eks", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"}, {"azure", "AZURE_FEDERATED_TOKEN_FILE"},
		{"gcp", "GOOGLE_APPLICATION_CREDENTIALS"},
	} {
		file := os.Getenv(cloud.variable)
		if file == "" {
			continue
		}
		var err error
		if cloud.name == "gcp" {
			file, err = sourceOf(file)
		}
		audience := "unreadable"
		if err == nil {
			audience = audienceOf(file)
		}
		found = append(found, cloud.name+" "+audience)
	}
	if len(found) == 0 {
		return "none"
	}
	return strings.Join(found, ", ")
}

// sourceOf returns the file of the token in a credential file of Google.
func sourceOf(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var credentials struct {
		Source struct {
			File string `json:"file"`
		} `json:"credential_source"`
	}
	err = json.Unmarshal(text, &credentials)
	return credentials.Source.File, err
}

// audienceOf returns the audience of the token in a file, or the reason for none.
func audienceOf(file string) string {
	token, err := os.ReadFile(file)
	if err != nil {
		return "unreadable"
	}
	read, err := claims.Read(string(token))
	if err != nil {
		return "malformed"
	}
	if time.Now().Unix() >= read.Expires {
		return "expired"
	}
	return strings.Join(read.Audience, " ")
}
