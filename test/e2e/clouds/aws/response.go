// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
)

// namespace is the XML namespace of the responses.
const namespace = "https://sts.amazonaws.com/doc/2011-06-15/"

// session is the result of a successful call.
type session struct {
	XMLName xml.Name // of the operation
	// AssumeRole does not have the first three.
	SubjectFromWebIdentityToken string `xml:",omitempty"`
	Audience                    string `xml:",omitempty"`
	Provider                    string `xml:",omitempty"`
	AssumedRoleUser             struct {
		Arn           string
		AssumedRoleID string `xml:"AssumedRoleId"`
	}
	Credentials struct {
		AccessKeyID     string `xml:"AccessKeyId"`
		SecretAccessKey string
		SessionToken    string
		Expiration      string
	}
}

func newSession(r request, now time.Time) session {
	var s session
	s.AssumedRoleUser.Arn = fmt.Sprintf("arn:%s:sts::%s:assumed-role/%s/%s", r.partition, r.account, r.roleName, r.sessionName)
	// The ID of a role never changes. Real IDs have 21 characters.
	id := sha256.Sum256([]byte(r.roleARN))
	s.AssumedRoleUser.AssumedRoleID = "AROA" + base32.StdEncoding.EncodeToString(id[:])[:17] + ":" + r.sessionName
	s.Credentials.AccessKeyID = "ASIA" + rand.Text()[:16]
	s.Credentials.SecretAccessKey = random(30)
	s.Credentials.SessionToken = random(300)
	s.Credentials.Expiration = now.Add(time.Duration(r.duration) * time.Second).UTC().Format(time.RFC3339)
	return s
}

// random returns the given number of random bytes in base64.
func random(bytes int) string {
	raw := make([]byte, bytes)
	_, _ = rand.Read(raw) // never fails
	return base64.StdEncoding.EncodeToString(raw)
}

// granted returns the response with a session.
func granted(entry journal.Entry, s session) journal.Response {
	entry.Status = http.StatusOK
	entry.Credential = journal.Digest(s.Credentials.SessionToken)
	requestID := string(uuid.NewUUID())
	s.XMLName.Local = entry.Operation + "Result"
	return response(entry, requestID, struct {
		XMLName   xml.Name
		Namespace string `xml:"xmlns,attr"`
		Result    session
		RequestID string `xml:"ResponseMetadata>RequestId"`
	}{xml.Name{Local: entry.Operation + "Response"}, namespace, s, requestID})
}

// failed returns the response with an error.
func failed(entry journal.Entry, f *journal.Failure) journal.Response {
	entry.Status, entry.Code, entry.Message = f.Status, f.Code, f.Message
	requestID := string(uuid.NewUUID())
	a := response(entry, requestID, struct {
		XMLName   xml.Name `xml:"ErrorResponse"`
		Namespace string   `xml:"xmlns,attr"`
		Type      string   `xml:"Error>Type"`
		Code      string   `xml:"Error>Code"`
		Message   string   `xml:"Error>Message"`
		RequestID string   `xml:"RequestId"`
	}{Namespace: namespace, Type: "Sender", Code: f.Code, Message: f.Message, RequestID: requestID})
	a.Err = f.Err
	return a
}

func response(entry journal.Entry, requestID string, body any) journal.Response {
	entry.Cloud = journal.AWS
	text, err := xml.MarshalIndent(body, "", "  ")
	if err != nil {
		entry.Status = http.StatusInternalServerError
	}
	return journal.Response{
		Entry: entry,
		Header: http.Header{
			"Content-Type":     {"text/xml"},
			"X-Amzn-Requestid": {requestID},
		},
		Body: append(text, '\n'),
		Err:  err,
	}
}
