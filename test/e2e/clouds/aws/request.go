// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/lanyard-dev/lanyard/test/e2e/clouds/journal"
)

// The limits and the default of DurationSeconds.
const (
	minDuration     = 900
	maxDuration     = 43200
	defaultDuration = 3600
)

// sessionName is the pattern of RoleSessionName.
var sessionName = regexp.MustCompile(`^[\w+=,.@-]*$`)

// request is a valid call of AssumeRoleWithWebIdentity or AssumeRole.
type request struct {
	roleARN string
	// partition, account and roleName are parts of the ARN.
	partition, account, roleName string
	sessionName                  string
	token                        string // not of AssumeRole
	duration                     int
}

// parse checks all constraints of the API, because the real service reports all
// violations together.
func parse(form url.Values) (request, *journal.Failure) {
	parsed := request{
		roleARN:     form.Get("RoleArn"),
		sessionName: form.Get("RoleSessionName"),
		token:       form.Get("WebIdentityToken"),
		duration:    defaultDuration,
	}
	violations := lengthViolations(form, "RoleArn", 20, 2048)
	violations = append(violations, lengthViolations(form, "RoleSessionName", 2, 64)...)
	if !sessionName.MatchString(parsed.sessionName) {
		violations = append(violations, violation("RoleSessionName", quoted(parsed.sessionName), `Member must satisfy regular expression pattern: [\w+=,.@-]*`))
	}
	if form.Get("Action") == withWebIdentity {
		violations = append(violations, lengthViolations(form, "WebIdentityToken", 4, 20000)...)
	}
	if given := form.Get("DurationSeconds"); given != "" {
		duration, err := strconv.Atoi(given)
		switch {
		case err != nil:
			return request{}, badRequest("MalformedInput", "DurationSeconds is not an integer")
		case duration < minDuration:
			violations = append(violations, violation("DurationSeconds", quoted(given), fmt.Sprintf("Member must have value greater than or equal to %d", minDuration)))
		case duration > maxDuration:
			violations = append(violations, violation("DurationSeconds", quoted(given), fmt.Sprintf("Member must have value less than or equal to %d", maxDuration)))
		}
		parsed.duration = duration
	}
	if count := len(violations); count == 1 {
		return request{}, invalid("1 validation error detected: " + violations[0])
	} else if count > 1 {
		return request{}, invalid(fmt.Sprintf("%d validation errors detected: %s", count, strings.Join(violations, "; ")))
	}
	parts := roleARN.FindStringSubmatch(parsed.roleARN)
	if parts == nil {
		return request{}, invalid("Request ARN is invalid")
	}
	parsed.partition, parsed.account = parts[1], parts[2]
	parsed.roleName = parts[3][strings.LastIndexByte(parts[3], '/')+1:]
	return parsed, nil
}

func invalid(message string) *journal.Failure { return badRequest("ValidationError", message) }

// lengthViolations returns at most one violation. Its text does not contain
// tokens.
func lengthViolations(form url.Values, name string, shortest, longest int) []string {
	value := form.Get(name)
	length := utf8.RuneCountInString(value)
	shown := quoted(value)
	if name == "WebIdentityToken" {
		shown = ""
	}
	switch {
	case !form.Has(name):
		return []string{violation(name, " null", "Member must not be null")}
	case length < shortest:
		return []string{violation(name, shown, fmt.Sprintf("Member must have length greater than or equal to %d", shortest))}
	case length > longest:
		return []string{violation(name, shown, fmt.Sprintf("Member must have length less than or equal to %d", longest))}
	}
	return nil
}

// violation returns the text of one violation. Member names begin with a
// lower-case letter.
func violation(name, shown, constraint string) string {
	return fmt.Sprintf("Value%s at '%s' failed to satisfy constraint: %s", shown, strings.ToLower(name[:1])+name[1:], constraint)
}

func quoted(value string) string {
	return " '" + value + "'"
}
