// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package ibm_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/ibm"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/issuer/issuertest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal/journaltest"
	"github.com/lanyard-dev/lanyard/test/e2e/clouds/trust"
)

const profile = "Profile-00001111-aaaa-2222-bbbb-3333cccc4444"

func config() trust.IBM {
	return trust.IBM{TrustedProfiles: []trust.TrustedProfile{{ID: profile, Links: []trust.ProfileLink{
		{CRType: "ROKS_SA", Link: trust.Link{CRN: "crn:v1:cluster", Namespace: "shop", Name: "cart"}},
	}}}}
}

// call is a request of a token.
type call struct {
	audience, grant, profile string
	claims                   map[string]any
	otherKey, down           bool
	want                     string // the code, "" for a credential
	details                  string // a part of the details
}

func TestExchange(t *testing.T) {
	t.Parallel()
	const grant, notEligible = "urn:ibm:params:oauth:grant-type:cr-token", "BXNIM0398E"
	of := func(namespace, name string) map[string]any {
		return map[string]any{"kubernetes.io": map[string]any{"namespace": namespace, "serviceaccount": map[string]string{"name": name}}}
	}
	for sentence, c := range map[string]call{
		"a token that is trusted":       {"iam", grant, profile, nil, false, false, "", ""},
		"another grant type":            {"iam", "password", profile, nil, false, false, "BXNIM0109E", "grant_type"},
		"no profile":                    {"iam", grant, "", nil, false, false, "BXNIM0109E", "profile_id"},
		"another audience":              {"somebody-else", grant, profile, nil, false, false, notEligible, "another audience"},
		"an expired token":              {"iam", grant, profile, map[string]any{"exp": time.Now().Add(-time.Second).Unix()}, false, false, notEligible, "not valid"},
		"a key of somebody else":        {"iam", grant, profile, nil, true, false, notEligible, "not valid"},
		"keys that cannot be read":      {"iam", grant, profile, nil, false, true, notEligible, "cannot be read"},
		"another ServiceAccount":        {"iam", grant, profile, of("shop", "other"), false, false, notEligible, "is not permitted"},
		"the name in another namespace": {"iam", grant, profile, of("other", "cart"), false, false, notEligible, "is not permitted"},
		"an unknown profile":            {"iam", grant, strings.ToUpper(profile), nil, false, false, notEligible, "is not permitted"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			c.run(t)
		})
	}
}

func (c *call) run(t *testing.T) {
	t.Helper()
	cluster, token := issuertest.Case{Audience: c.audience, Claims: c.claims, OtherKey: c.otherKey, Down: c.down}.Issue(t)
	recorder := journaltest.New()
	iam, err := ibm.New(config(), cluster.Issuer, recorder.Journal)
	if err != nil {
		t.Fatal(err)
	}
	form := url.Values{"grant_type": {c.grant}, "profile_id": {c.profile}, "cr_token": {token}}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://iam.cloud.ibm.com/identity/token", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	iam.ServeHTTP(w, r)
	var body struct {
		Code    string `json:"errorCode"`
		Message string `json:"errorMessage"`
		Details string `json:"errorDetails"`
		Token   string `json:"access_token"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	if body.Code != c.want || !strings.Contains(body.Details, c.details) || (c.want == "") != (w.Code == http.StatusOK) {
		t.Errorf("got %d %s %q, want %s with %q", w.Code, body.Code, body.Details, c.want, c.details)
	}
	entry := recorder.Last(t)
	if entry.Cloud != journal.IBM || entry.Status != w.Code || entry.Code != c.want || entry.Message != body.Message || entry.Identity != c.profile {
		t.Errorf("got entry %+v", entry)
	}
	if granted := c.want == ""; granted != (body.Token != "") || granted && entry.Credential != journal.Digest(body.Token) {
		t.Errorf("got token %q with entry %+v", body.Token, entry)
	}
}

func TestUnsupportedTrust(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]trust.IBM{
		"a profile by its name": {TrustedProfiles: []trust.TrustedProfile{{ID: "cart"}}},
		"a link to a machine":   {TrustedProfiles: []trust.TrustedProfile{{ID: profile, Links: []trust.ProfileLink{{CRType: "VSI"}}}}},
	} {
		if _, err := ibm.New(c, nil, nil); err == nil || !strings.HasPrefix(err.Error(), "ibm: ") {
			t.Errorf("%s: got error %v", sentence, err)
		}
	}
}
