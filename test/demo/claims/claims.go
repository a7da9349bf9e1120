// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package claims reads the claims of tokens.
package claims

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
)

// Claims are the claims that a cloud checks.
type Claims struct {
	Issuer     string   `json:"iss"`
	Subject    string   `json:"sub"`
	Audience   []string `json:"aud"`
	IssuedAt   int64    `json:"iat"`
	Expires    int64    `json:"exp"`
	Kubernetes struct {
		Pod struct {
			Name string `json:"name"`
			UID  string `json:"uid"`
		} `json:"pod"`
	} `json:"kubernetes.io"`
}

// Read decodes the claims of a JSON Web Token (RFC 7519), and does not check its
// signature. Errors never contain a part of the token.
func Read(token string) (c Claims, err error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c, fmt.Errorf("got a token with %d parts, want 3", len(parts))
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		return c, fmt.Errorf("decode the token's claims: %w", err)
	}
	return c, nil
}
