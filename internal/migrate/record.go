// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"slices"
	"strings"
)

// withoutRecord returns the value of Keys.Adopted without what was adopted for the
// clouds. An annotation without an entry belongs to the users who edit the ServiceAccount.
// The lifetime of the tokens stays in the record as long as another cloud's does.
func withoutRecord(record string, clouds []string) string {
	var rest []string
	others := false
	for entry := range strings.SplitSeq(record, ",") {
		cloud, _, _ := strings.Cut(entry, "-")
		if entry == "" || slices.Contains(clouds, cloud) {
			continue
		}
		rest = append(rest, entry)
		others = others || !strings.HasPrefix(entry, "token-expiration-seconds=")
	}
	if !others {
		return ""
	}
	return strings.Join(rest, ",")
}
