// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Claims are the header and the claims of a token. They contain no secret.
type Claims struct {
	// KeyID and Algorithm describe the signature.
	KeyID     string `json:"keyID"`
	Algorithm string `json:"algorithm"`

	Issuer   string   `json:"issuer"`
	Subject  string   `json:"subject"`
	Audience []string `json:"audience"`
	// IssuedAt and Expires are in UTC.
	IssuedAt time.Time `json:"issuedAt"`
	Expires  time.Time `json:"expires"`
}

// ErrOpaque is returned for a token that is not a JSON Web Token.
var ErrOpaque = errors.New("token")

// ParseToken reads the header and the claims of a JSON Web Token, without verifying the signature.
// The error never contains a part of the token.
func ParseToken(token string) (*Claims, error) {
	parts := strings.Split(strings.TrimSpace(token), ".")
	if len(parts) != 3 {
		return nil, fmt.Errorf("%w: got %d parts, want the 3 of a JSON Web Token", ErrOpaque, len(parts))
	}
	var raw struct {
		KeyID     string `json:"kid"`
		Algorithm string `json:"alg"`

		Issuer   string    `json:"iss"`
		Subject  string    `json:"sub"`
		Audience audiences `json:"aud"`
		IssuedAt int64     `json:"iat"`
		Expires  int64     `json:"exp"`
	}
	for i, part := range []string{"header is", "claims are"} {
		text, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil || json.Unmarshal(text, &raw) != nil {
			return nil, fmt.Errorf("token: the %s malformed", part)
		}
	}
	return &Claims{
		KeyID: raw.KeyID, Algorithm: raw.Algorithm, Issuer: raw.Issuer, Subject: raw.Subject, Audience: raw.Audience,
		IssuedAt: time.Unix(raw.IssuedAt, 0).UTC(), Expires: time.Unix(raw.Expires, 0).UTC(),
	}, nil
}

// audiences are one string or several (RFC 7519, section 4.1.3).
type audiences []string

// UnmarshalJSON reads both forms.
func (a *audiences) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*a = audiences{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(a))
}
