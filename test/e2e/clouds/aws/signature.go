// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
)

const (
	algorithm = "AWS4-HMAC-SHA256"
	// dateFormat is the format of X-Amz-Date.
	dateFormat = "20060102T150405Z"
	// maxSkew is how old or new a signature may be.
	maxSkew = 15 * time.Minute
)

// authorization captures the access key ID, the scope with its date and region, the
// names of the signed headers, and the signature.
var authorization = regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=(\w+)/(([0-9]{8})/([a-z0-9-]+)/sts/aws4_request), ?SignedHeaders=([a-z0-9;-]+), ?Signature=([0-9a-f]{64})$`)

// signer returns the session that signed the request.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
func (s *STS) signer(r *http.Request, body []byte, now time.Time) (issued, *journal.Failure) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return issued{}, forbidden("MissingAuthenticationToken", "Request is missing Authentication Token")
	}
	parts := authorization.FindStringSubmatch(header)
	date, err := time.Parse(dateFormat, r.Header.Get("X-Amz-Date"))
	if parts == nil || err != nil || !strings.HasPrefix(r.Header.Get("X-Amz-Date"), parts[3]) {
		return issued{}, badRequest("IncompleteSignature", "Authorization header or X-Amz-Date is malformed")
	}
	accessKeyID, scope, signed := parts[1], parts[2], strings.Split(parts[5], ";")
	caller, found := s.sessions.get(accessKeyID)
	switch {
	case !found || r.Header.Get("X-Amz-Security-Token") != caller.sessionToken:
		return issued{}, forbidden("InvalidClientTokenId", "The security token included in the request is invalid")
	case !now.Before(caller.expires):
		return issued{}, forbidden("ExpiredToken", "The security token included in the request is expired")
	case now.Sub(date).Abs() > maxSkew:
		return issued{}, forbidden("SignatureDoesNotMatch", "Signature expired or not yet current")
	}
	for _, name := range []string{"host", "x-amz-date", "x-amz-security-token"} {
		if !slices.Contains(signed, name) {
			return issued{}, forbidden("SignatureDoesNotMatch", "'"+name+"' must be a signed header")
		}
	}
	key := mac([]byte("AWS4"+caller.secretAccessKey), parts[3])
	for _, part := range []string{parts[4], "sts", "aws4_request"} {
		key = mac(key, part)
	}
	text := strings.Join([]string{algorithm, r.Header.Get("X-Amz-Date"), scope, digest([]byte(canonical(r, body, signed)))}, "\n")
	if !hmac.Equal([]byte(hex.EncodeToString(mac(key, text))), []byte(parts[6])) {
		return issued{}, forbidden("SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method. Consult the service documentation for details.")
	}
	return caller, nil
}

// canonical returns the canonical form of a POST request without a query.
func canonical(r *http.Request, body []byte, signed []string) string {
	lines := []string{r.Method, r.URL.Path, ""}
	for _, name := range signed {
		value := strings.Join(r.Header.Values(name), ",")
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = strconv.FormatInt(r.ContentLength, 10)
		}
		lines = append(lines, name+":"+strings.Join(strings.Fields(value), " "))
	}
	return strings.Join(append(lines, "", strings.Join(signed, ";"), digest(body)), "\n")
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write([]byte(text)) // never fails
	return h.Sum(nil)
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
