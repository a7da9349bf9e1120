// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package aws_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/aws"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer/issuertest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal/journaltest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

const (
	backup  = "arn:aws:iam::123456789012:role/backup"
	archive = "arn:aws:iam::123456789012:role/archive"
	host    = "sts.eu-central-1.amazonaws.com"
)

// chained returns a fixture in which reader may assume backup, and backup may assume archive.
func chained(t *testing.T) fixture {
	t.Helper()
	f := fixture{key: issuertest.RSA(t, "key-1"), journal: journaltest.New()}
	f.cluster = issuertest.Start(t, f.key)
	c := config()
	for role, source := range map[string]string{backup: reader, archive: backup} {
		c.Roles = append(c.Roles, trust.Role{ARN: role, MaxSessionDuration: 43200, AssumeRolePolicyDocument: trust.Policy{
			Version:   "2012-10-17",
			Statement: []trust.Statement{{Effect: "Allow", Principal: trust.Principal{AWS: trust.Strings{source}}, Action: trust.Strings{"sts:AssumeRole"}}},
		}})
	}
	var err error
	if f.sts, err = aws.New(c, f.cluster.Issuer, f.journal.Journal); err != nil {
		t.Fatal(err)
	}
	return f
}

// credentials are those of a session.
type credentials struct {
	AccessKeyID                   string `xml:"AccessKeyId"`
	SecretAccessKey, SessionToken string
}

// reader returns the credentials of the role reader.
func (f fixture) reader(t *testing.T) credentials {
	t.Helper()
	var got struct {
		Credentials credentials `xml:"AssumeRoleWithWebIdentityResult>Credentials"`
	}
	if err := xml.Unmarshal(f.call(t, form(f.token(t, nil), nil)).Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	return got.Credentials
}

// assume returns a signed call of AssumeRole, changed before it is signed.
func assume(t *testing.T, c credentials, role string, change func(url.Values, http.Header)) *http.Request {
	t.Helper()
	values := url.Values{"Action": {"AssumeRole"}, "Version": {"2011-06-15"}, "RoleArn": {role}, "RoleSessionName": {"cart@shop"}}
	header := http.Header{
		"Content-Type": {"application/x-www-form-urlencoded"},
		"X-Amz-Date":   {time.Now().UTC().Format("20060102T150405Z")}, "X-Amz-Security-Token": {c.SessionToken},
	}
	if change != nil {
		change(values, header)
	}
	body := values.Encode()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+host+"/", strings.NewReader(body))
	r.Header = header
	sign(r, c, body)
	return r
}

// sign signs a request as an SDK does.
func sign(r *http.Request, c credentials, body string) {
	hash := func(text string) string { sum := sha256.Sum256([]byte(text)); return hex.EncodeToString(sum[:]) }
	mac := func(key, text string) string {
		h := hmac.New(sha256.New, []byte(key))
		h.Write([]byte(text))
		return string(h.Sum(nil))
	}
	date := r.Header.Get("X-Amz-Date")
	day := date[:min(8, len(date))]
	const signed = "content-length;content-type;host;x-amz-date;x-amz-security-token"
	canonical := fmt.Sprintf("POST\n/\n\ncontent-length:%d\ncontent-type:%s\nhost:%s\nx-amz-date:%s\nx-amz-security-token:%s\n\n%s\n%s",
		len(body), r.Header.Get("Content-Type"), host, date, r.Header.Get("X-Amz-Security-Token"), signed, hash(body))
	scope := day + "/eu-central-1/sts/aws4_request"
	key := mac(mac(mac(mac("AWS4"+c.SecretAccessKey, day), "eu-central-1"), "sts"), "aws4_request")
	signature := hex.EncodeToString([]byte(mac(key, "AWS4-HMAC-SHA256\n"+date+"\n"+scope+"\n"+hash(canonical))))
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+c.AccessKeyID+"/"+scope+", SignedHeaders="+signed+", Signature="+signature)
}

func (f fixture) serve(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	f.sts.ServeHTTP(w, r)
	return w
}

func TestARoleAssumesAnother(t *testing.T) {
	t.Parallel()
	f := chained(t)
	c := f.reader(t)
	for _, role := range []string{"backup", "archive"} {
		w := f.serve(assume(t, c, "arn:aws:iam::123456789012:role/"+role, nil))
		var got struct {
			XMLName xml.Name `xml:"https://sts.amazonaws.com/doc/2011-06-15/ AssumeRoleResponse"`
			Result  struct {
				AssumedRoleUser struct{ Arn string }
				Credentials     credentials
				Provider        *string
			} `xml:"AssumeRoleResult"`
		}
		if err := xml.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK {
			t.Fatalf("got %d, error %v and %s", w.Code, err, w.Body)
		}
		if want := "arn:aws:sts::123456789012:assumed-role/" + role + "/cart@shop"; got.Result.AssumedRoleUser.Arn != want || got.Result.Provider != nil {
			t.Errorf("got %+v, want the user %s and no provider", got.Result, want)
		}
		entry := f.journal.Last(t)
		if entry.Operation != "AssumeRole" || entry.Status != 200 || entry.PodUID != issuertest.PodUID || entry.Subject != issuertest.Subject ||
			entry.Credential != journal.Digest(got.Result.Credentials.SessionToken) || entry.Credential == journal.Digest(c.SessionToken) {
			t.Errorf("got entry %+v, want that of the pod whose token the first role was assumed with", entry)
		}
		c = got.Result.Credentials
	}
}

func TestAssumeRoleOfAnotherIsRefused(t *testing.T) {
	t.Parallel()
	f := chained(t)
	c := f.reader(t)
	const user = "User: arn:aws:sts::123456789012:assumed-role/reader/shop.cart is not authorized to perform: sts:AssumeRole on resource: "
	header := func(name, value string) func(url.Values, http.Header) {
		return func(_ url.Values, h http.Header) { h.Set(name, value) }
	}
	parameter := func(name, value string) func(url.Values, http.Header) {
		return func(v url.Values, _ http.Header) { v.Set(name, value) }
	}
	stranger, forged := c, c
	stranger.AccessKeyID = "ASIAAAAAAAAAAAAAAAAA"
	forged.SecretAccessKey += "x"
	changed := func(change func(*http.Request)) *http.Request {
		r := assume(t, c, backup, nil)
		change(r)
		return r
	}
	for name, test := range map[string]struct {
		request       *http.Request
		status        int
		code, message string
	}{
		"a role that trusts another role":         {assume(t, c, archive, nil), 403, "AccessDenied", user + archive},
		"a role that trusts tokens only":          {assume(t, c, reader, nil), 403, "AccessDenied", user + reader},
		"a role that does not exist":              {assume(t, c, archive+"x", nil), 403, "AccessDenied", user + archive + "x"},
		"no signature":                            {changed(func(r *http.Request) { r.Header.Del("Authorization") }), 403, "MissingAuthenticationToken", "Request is missing Authentication Token"},
		"a malformed signature":                   {changed(func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }), 400, "IncompleteSignature", "Authorization header or X-Amz-Date is malformed"},
		"no date":                                 {assume(t, c, backup, header("X-Amz-Date", "")), 400, "IncompleteSignature", "Authorization header or X-Amz-Date is malformed"},
		"an old signature":                        {assume(t, c, backup, header("X-Amz-Date", time.Now().UTC().Add(-time.Hour).Format("20060102T150405Z"))), 403, "SignatureDoesNotMatch", "Signature expired or not yet current"},
		"keys that were not issued":               {assume(t, stranger, backup, nil), 403, "InvalidClientTokenId", "The security token included in the request is invalid"},
		"the session token of another":            {assume(t, c, backup, header("X-Amz-Security-Token", "x")), 403, "InvalidClientTokenId", "The security token included in the request is invalid"},
		"a secret key that is not that of the ID": {assume(t, forged, backup, nil), 403, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method. Consult the service documentation for details."},
		"a header that was changed afterwards": {changed(func(r *http.Request) {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
		}), 403, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method. Consult the service documentation for details."},
		"a host that is not signed": {changed(func(r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), ";host;", ";", 1))
		}), 403, "SignatureDoesNotMatch", "'host' must be a signed header"},
		"more than an hour":           {assume(t, c, backup, parameter("DurationSeconds", "3601")), 400, "ValidationError", "The requested DurationSeconds exceeds the 1 hour session limit for roles assumed by role chaining"},
		"a session name with a slash": {assume(t, c, backup, parameter("RoleSessionName", "shop/cart")), 400, "ValidationError", `1 validation error detected: Value 'shop/cart' at 'roleSessionName' failed to satisfy constraint: Member must satisfy regular expression pattern: [\w+=,.@-]*`},
	} {
		t.Run(name, func(t *testing.T) {
			w := f.serve(test.request)
			var got struct {
				Error struct{ Code, Message string }
			}
			if err := xml.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatalf("%v: %s", err, w.Body)
			}
			if diff := cmp.Diff([]any{test.status, test.code, test.message}, []any{w.Code, got.Error.Code, got.Error.Message}); diff != "" {
				t.Errorf("response (-want +got):\n%s", diff)
			}
			if entry := f.journal.Last(t); entry.Operation != "AssumeRole" || entry.Code != test.code || entry.Credential != "" {
				t.Errorf("got entry %+v", entry)
			}
		})
	}
}

func TestARoleOfAnotherAccountIsNotConfigured(t *testing.T) {
	t.Parallel()
	c := config()
	c.Roles[0].AssumeRolePolicyDocument.Statement[0].Principal = trust.Principal{AWS: trust.Strings{"arn:aws:iam::999999999999:role/reader"}}
	if _, err := aws.New(c, nil, nil); err == nil || !strings.Contains(err.Error(), "want the ARN of a role in the account 123456789012") {
		t.Errorf("got error %v", err)
	}
}
